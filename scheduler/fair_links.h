// Transfers that share links max-min fair, by progressive filling: the rates of all rise together
// until a link is full or a transfer has all it can use; who crosses that link stays as it is, and
// the others go on. Bertsekas and Gallager, Data Networks, 6.5.2, with a cap per transfer.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace weft::scheduler {

// What a transfer that has everything for itself takes of a link, as a part of the link: 0 to 1.
struct LinkUse {
  std::int32_t link = 0;
  double share = 0;
  friend bool operator==(const LinkUse&, const LinkUse&) = default;
};

class FairLinks {
 public:
  explicit FairLinks(int links) : links_(links) {}

  // A transfer comes; its number, which is free again once it has ended. `uses` name each link once
  // and outlive it. `full_rate` > 0 is what it carries where nothing hinders it, in a unit that is
  // the same for all: rates are fair by that unit.
  int Begin(absl::Span<const LinkUse> uses, double full_rate);
  void End(int transfer);

  // Rates as parts of full_rate, above 0 and at most 1, of the transfers that have come since the
  // last call or whose rate may be another one; ascending numbers. The answer is valid until the
  // next call. Costs what the transfers behind full links cost that are touched by who has come or
  // gone.
  const std::vector<std::pair<int, double>>& Settle();

  // What is left of a transfer's full rate.
  double rate(int transfer) const { return transfers_[transfer].rate; }

 private:
  struct Transfer {
    absl::Span<const LinkUse> uses;
    double full_rate = 0;
    double rate = 0;
    bool gathered = false;  // in changed_
    bool frozen = false;    // in Fill()
  };
  struct State {
    std::vector<std::pair<int, double>> transfers;  // with their shares, in order of coming
    bool dirty = false;
    bool tight = false;     // all at full rate do not fit
    bool gathered = false;  // in tight_
  };

  void Touch(const Transfer& transfer);
  void Gather(int transfer);
  // Of what has been gathered.
  void Fill();

  std::vector<Transfer> transfers_;
  std::vector<int> free_;
  std::vector<State> links_;
  std::vector<std::int32_t> dirty_;
  std::vector<int> came_;
  std::vector<std::int32_t> tight_;
  std::vector<std::pair<int, double>> changed_;
};

}  // namespace weft::scheduler
