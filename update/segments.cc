// Which segments of Gram NS are safe, by a scalar model: docs/update-rules.md.
#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "weft/update.h"

namespace weft {
namespace {

// Conditions closer than this are equal for all that a worst-case model can tell.
constexpr double kTie = 1.25;

constexpr int kGridPoints = 2000;
constexpr double kSmallest = 1e-10;

double Condition(const Coefficients& coefficients, const std::vector<int>& segments,
                 double epsilon) {
  std::vector<double> x(kGridPoints), r(kGridPoints), q(kGridPoints);
  for (int i = 0; i < kGridPoints; ++i) {
    x[i] = std::pow(kSmallest, static_cast<double>(i) / (kGridPoints - 1));
  }
  double worst = 1;
  std::size_t iteration = 0;
  for (const int length : segments) {
    for (int i = 0; i < kGridPoints; ++i) {
      r[i] = x[i] * x[i] + epsilon;
      q[i] = 1;
    }
    for (int step = 0; step < length; ++step, ++iteration) {
      const auto& triples = coefficients.triples;
      const Triple& t = triples[std::min(iteration, triples.size() - 1)];
      double smallest = std::numeric_limits<double>::infinity(), largest = 0;
      for (int i = 0; i < kGridPoints; ++i) {
        const double z = t.a + r[i] * (t.b + r[i] * t.c);
        q[i] *= z;
        r[i] *= z * z;
        smallest = std::min(smallest, std::abs(q[i]));
        largest = std::max(largest, std::abs(q[i]));
      }
      const double ratio = largest / smallest;
      if (!std::isfinite(ratio)) return std::numeric_limits<double>::infinity();
      worst = std::max(worst, ratio);
    }
    for (int i = 0; i < kGridPoints; ++i) x[i] *= q[i];
  }
  return worst;
}

void Compositions(int rest, std::vector<int>& prefix, std::vector<std::vector<int>>& all) {
  if (rest == 0) {
    all.push_back(prefix);
    return;
  }
  for (int first = rest; first >= 1; --first) {
    prefix.push_back(first);
    Compositions(rest - first, prefix, all);
    prefix.pop_back();
  }
}

}  // namespace

double SpuriousEigenvalue(DType operand_type) {
  switch (operand_type) {
    case DType::kF32:
      return -1e-6;
    case DType::kBF16:
      return -3.2e-3;
    case DType::kF16:
      return -4e-4;
  }
  return 0;
}

int LongestSegment(DType operand_type) {
  switch (operand_type) {
    case DType::kF32:
    case DType::kF16:
      return 2;
    case DType::kBF16:
      return 0;
  }
  return 0;
}

SegmentAnalysis AnalyzeSegments(const Coefficients& coefficients, const std::vector<int>& segments,
                                double epsilon) {
  SegmentAnalysis analysis;
  analysis.segments = segments;
  analysis.epsilon = epsilon;
  analysis.condition = Condition(coefficients, segments, epsilon);
  analysis.safe = analysis.condition <= SegmentAnalysis::kSafeCondition;
  return analysis;
}

std::vector<int> ChooseSegments(const Coefficients& coefficients, int iterations, double epsilon,
                                int longest) {
  // The number of compositions doubles with each iteration. Longer runs, which none of the known
  // coefficients are made for, take plain NS rather than a search without bound.
  constexpr int kMostIterations = 12;
  if (iterations > kMostIterations) return {0};
  std::vector<std::vector<int>> all;
  std::vector<int> prefix;
  Compositions(iterations, prefix, all);

  // FLOPs of matrices longer than wide fall with the number of segments. Among equal ones short
  // chains of recurrences are preferred.
  const auto cost = [](const std::vector<int>& segments) {
    return std::tuple(segments.size(), *std::max_element(segments.begin(), segments.end()));
  };
  std::vector<SegmentAnalysis> best;
  for (const std::vector<int>& segments : all) {
    if (static_cast<int>(segments.size()) == iterations) continue;  // plain NS
    if (longest > 0 && std::get<1>(cost(segments)) > longest) continue;
    const SegmentAnalysis analysis = AnalyzeSegments(coefficients, segments, epsilon);
    if (!analysis.safe) continue;
    if (best.empty() || cost(segments) < cost(best[0].segments)) best.clear();
    if (best.empty() || cost(segments) == cost(best[0].segments)) best.push_back(analysis);
  }
  if (best.empty()) return {0};
  const double least = std::min_element(best.begin(), best.end(), [](const auto& a, const auto& b) {
                         return a.condition < b.condition;
                       })->condition;
  std::erase_if(best, [&](const auto& analysis) { return analysis.condition > kTie * least; });
  // Ties go to the set whose first segment has the length that published runs use (two), then to
  // longer segments first.
  return std::min_element(best.begin(), best.end(),
                          [](const auto& a, const auto& b) {
                            const int off_a = std::abs(a.segments[0] - 2),
                                      off_b = std::abs(b.segments[0] - 2);
                            return off_a != off_b ? off_a < off_b : a.segments > b.segments;
                          })
      ->segments;
}

}  // namespace weft
