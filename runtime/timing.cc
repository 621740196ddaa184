#include "runtime/timing.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/status_macros.h"

namespace weft::runtime {
namespace {

// Fewer have no median that one disturbance leaves alone.
constexpr double kFewestRepetitions = 3;

// The p-quantile of an ascending list.
double Quantile(const std::vector<double>& sorted, double p) {
  const double place = p * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Timing Summarize(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const double median = Quantile(seconds, 0.5);
  return {median, (Quantile(seconds, 0.75) - Quantile(seconds, 0.25)) / median};
}

absl::StatusOr<std::vector<std::int64_t>> Timer::Repeat(int repetitions, const Enqueue& align,
                                                        const Enqueue& work) {
  std::vector<std::int64_t> nanos(repetitions, 0);
  if (!work) return nanos;
  std::vector<Nanos> begins(repetitions, 0), ends(repetitions, 0);
  absl::Status status;
  for (int i = 0; i < repetitions && status.ok(); ++i) {
    if (align) status = align(*stream_);
    stream_->RecordTime(&begins[i]);
    if (status.ok()) status = work(*stream_);
    stream_->RecordTime(&ends[i]);
  }
  // Also after a refusal: what is enqueued writes to the lists.
  status.Update(stream_->Synchronize(absl::InfiniteDuration()));
  if (!status.ok()) {
    const absl::Status root = transport_.failure();
    return root.ok() ? status : root;
  }
  // Nothing takes no time, and a clock may be coarse.
  for (int i = 0; i < repetitions; ++i) nanos[i] = std::max<Nanos>(ends[i] - begins[i], 1);
  return nanos;
}

absl::StatusOr<std::vector<std::int64_t>> Timer::Slowest(
    const absl::StatusOr<std::vector<std::int64_t>>& own, const std::string& what) {
  WEFT_RETURN_IF_ERROR(ranks_.Agree(own.status(), what));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> all, ranks_.ExchangeNumbers(*own, what));
  const std::size_t repetitions = own->size();
  std::vector<std::int64_t> slowest(repetitions, 0);
  for (std::size_t i = 0; i < all.size(); ++i) {
    slowest[i % repetitions] = std::max(slowest[i % repetitions], all[i]);
  }
  return slowest;
}

absl::StatusOr<Timing> Timer::Measure(const std::string& what, const absl::Status& prepared,
                                      const Enqueue& align, const Enqueue& work) {
  if (options_.on_sample) options_.on_sample(what);
  WEFT_RETURN_IF_ERROR(ranks_.Agree(prepared, what));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> first,
                        Slowest(Repeat(1, align, work), what));
  // The same number on all ranks.
  const auto most = static_cast<double>(options_.repetitions);
  const double fit = absl::ToDoubleNanoseconds(options_.longest) / static_cast<double>(first[0]);
  const int repetitions =
      static_cast<int>(std::clamp(fit, std::min(kFewestRepetitions, most), most));
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> nanos,
                        Slowest(Repeat(repetitions, align, work), what));
  std::vector<double> seconds;
  seconds.reserve(nanos.size());
  for (const std::int64_t n : nanos) seconds.push_back(static_cast<double>(n) * 1e-9);
  return Summarize(std::move(seconds));
}

}  // namespace weft::runtime
