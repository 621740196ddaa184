// FairLinks against the definition of max-min fairness, and against filling by bisection.
#include "scheduler/fair_links.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "tests/scheduler/requests.h"

namespace weft::testing {
namespace {

using scheduler::FairLinks;
using scheduler::LinkUse;

constexpr double kSmall = 1e-9;

struct Flow {
  std::vector<LinkUse> uses;
  double full_rate = 1;
};
using Flows = std::map<int, Flow>;  // by FairLinks' number
using Rates = std::map<int, double>;

double Load(const Flows& flows, const Rates& rates, int link) {
  double load = 0;
  for (const auto& [id, flow] : flows) {
    for (const LinkUse& use : flow.uses) load += use.link == link ? use.share * rates.at(id) : 0;
  }
  return load;
}

bool Fits(const Flows& flows, const Rates& rates, int links) {
  for (int link = 0; link < links; ++link) {
    if (Load(flows, rates, link) > 1) return false;
  }
  return true;
}

// The common level of all that can still rise is found by bisection, again and again.
Rates Filled(const Flows& flows, int links) {
  Rates rates;
  std::set<int> rising;
  for (const auto& [id, flow] : flows) rising.insert(id);
  while (!rising.empty()) {
    const auto at = [&](double level) {
      Rates raised = rates;
      for (const int id : rising) raised[id] = std::min(1.0, level / flows.at(id).full_rate);
      return raised;
    };
    double low = 0, high = 1e6;
    for (int i = 0; i < 200; ++i) {
      const double middle = (low + high) / 2;
      (Fits(flows, at(middle), links) ? low : high) = middle;
    }
    rates = at(low);
    std::set<int> stopped;
    for (const int id : rising) {
      bool stops = rates[id] >= 1 - kSmall;
      for (const LinkUse& use : flows.at(id).uses) {
        stops = stops || Load(flows, rates, use.link) >= 1 - kSmall;
      }
      if (stops) stopped.insert(id);
    }
    RC_ASSERT(!stopped.empty());
    for (const int id : stopped) rising.erase(id);
  }
  return rates;
}

// Nothing is overfull, and whoever has less than it can use crosses a full link on which nobody has
// more: there is one such allocation (Bertsekas and Gallager, Data Networks, 6.5.2).
void CheckFair(const Flows& flows, const Rates& rates, int links) {
  for (int link = 0; link < links; ++link) RC_ASSERT(Load(flows, rates, link) <= 1 + kSmall);
  for (const auto& [id, flow] : flows) {
    const double rate = rates.at(id);
    RC_ASSERT(rate > 0.0);
    RC_ASSERT(rate <= 1.0);
    if (rate == 1.0) continue;
    bool held_back = false;
    for (const LinkUse& use : flow.uses) {
      bool has_most = Load(flows, rates, use.link) >= 1 - kSmall;
      for (const auto& [other, its] : flows) {
        for (const LinkUse& met : its.uses) {
          if (met.link != use.link) continue;
          has_most =
              has_most && rates.at(other) * its.full_rate <= rate * flow.full_rate * (1 + kSmall);
        }
      }
      held_back = held_back || has_most;
    }
    RC_ASSERT(held_back);
  }
}

Flow DrawFlow(int links) {
  Flow flow;
  for (int link = 0; link < links; ++link) {
    if (*Evenly(0, 2) == 0) continue;
    flow.uses.push_back({link, *Evenly(1, 101) / 100.0});
  }
  flow.full_rate = *rc::gen::element(1.0, 1.0, 0.25, 3.0, 1e3);
  return flow;
}

RC_GTEST_PROP(FairLinksLaw, RatesAreMaxMinFairWhoeverComesAndGoes, ()) {
  const int count = *Evenly(1, 6);
  FairLinks links(count);
  // FairLinks keeps spans, so that the flows must stay where they are.
  std::map<int, Flow> flows;
  Rates rates;
  for (int change = 0; change < 25; ++change) {
    for (int several = *Evenly(1, 4); several > 0; --several) {
      if (!flows.empty() && *Evenly(0, 3) == 0) {
        const auto gone = std::next(flows.begin(), *Evenly<int>(0, static_cast<int>(flows.size())));
        links.End(gone->first);
        rates.erase(gone->first);
        flows.erase(gone);
      } else {
        auto node = std::map<int, Flow>{{-1, DrawFlow(count)}}.extract(-1);
        node.key() = links.Begin(node.mapped().uses, node.mapped().full_rate);
        flows.insert(std::move(node));
      }
    }
    int before = -1;
    for (const auto& [id, rate] : links.Settle()) {
      RC_ASSERT(id > before);
      before = id;
      rates[id] = rate;
    }
    // Whose rate was not told anew has kept it.
    for (const auto& [id, flow] : flows) RC_ASSERT(rates.at(id) == links.rate(id));
    CheckFair(flows, rates, count);
    for (const auto& [id, rate] : Filled(flows, count)) {
      RC_ASSERT(std::abs(rate - rates.at(id)) < 1e-6);
    }
  }
}

TEST(FairLinks, OneAloneHasItsFullRate) {
  FairLinks links(2);
  const std::vector<LinkUse> uses = {{0, 1}, {1, 0.5}};
  const int only = links.Begin(uses, 7);
  ASSERT_EQ(links.Settle().size(), 1u);
  EXPECT_EQ(links.rate(only), 1);
  EXPECT_TRUE(links.Settle().empty());
}

// Link 0 is full with two, of which one leaves half of link 1; the third there may use three
// quarters of it and finds a half.
TEST(FairLinks, WhatOneCannotUseOthersGet) {
  FairLinks links(2);
  const std::vector<LinkUse> first = {{0, 1}}, both = {{0, 1}, {1, 1}}, second = {{1, 0.75}};
  const int a = links.Begin(first, 1), b = links.Begin(both, 1), c = links.Begin(second, 1);
  links.Settle();
  EXPECT_EQ(links.rate(a), 0.5);
  EXPECT_EQ(links.rate(b), 0.5);
  EXPECT_DOUBLE_EQ(links.rate(c), 0.5 / 0.75);
  links.End(a);
  links.Settle();
  // Both carry the same: x + 0.75 x = 1.
  EXPECT_DOUBLE_EQ(links.rate(b), 1 / 1.75);
  EXPECT_DOUBLE_EQ(links.rate(c), 1 / 1.75);
}

// A slow one asks for little and gets all of it; fairness is by what is carried, not by progress.
TEST(FairLinks, RatesAreFairByWhatIsCarried) {
  FairLinks links(1);
  const std::vector<LinkUse> half = {{0, 0.25}}, whole = {{0, 1}};
  const int slow = links.Begin(half, 1), fast = links.Begin(whole, 4);
  links.Settle();
  EXPECT_EQ(links.rate(slow), 1);
  EXPECT_EQ(links.rate(fast), 0.75);
}

}  // namespace
}  // namespace weft::testing
