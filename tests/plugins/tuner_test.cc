// Laws of the tuner, through the tables that NCCL finds in the library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include "tests/plugins/library.h"
#include "tests/plugins/ring_model.h"
#include "tests/support/property.h"

namespace weft::testing {
namespace {

using namespace nccl_plugin;  // NOLINT: names of NCCL's tables throughout

const TunerV5& V5() {
  static const PluginLibrary library("tuner", "weft");
  return library.Find<TunerV5>("ncclTunerPlugin_v5");
}

const TunerV4& V4() {
  static const PluginLibrary library("tuner", "weft");
  return library.Find<TunerV4>("ncclTunerPlugin_v4");
}

// One communicator's tuner.
class Tuner {
 public:
  explicit Tuner(const Ring& ring, std::uint64_t id = 1) {
    NvlDomainsV5 domains = {static_cast<int>(ring.nodes), 1, static_cast<int>(ring.ranks)};
    TunerConstantsV5 constants = DefaultConstants();
    EXPECT_EQ(V5().init(&context_, id, ring.ranks, ring.nodes, &Log, &domains, &constants), 0);
    EXPECT_EQ(std::memcmp(&constants, &DefaultConstants(), sizeof constants), 0);
  }
  ~Tuner() { EXPECT_EQ(V5().finalize(context_), 0); }
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  int Tune(int function, std::size_t bytes, int pipe_ops, Table* table,
           int algorithms = kAlgorithms, int protocols = kProtocols) const {
    int channels = 0;
    EXPECT_EQ(V5().get_coll_info(context_, function, bytes, pipe_ops,
                                 reinterpret_cast<float**>(table->data()), algorithms, protocols, 0,
                                 &channels),
              0);
    return channels;
  }

 private:
  void* context_ = nullptr;
};

rc::Gen<Ring> AnyRing() {
  return rc::gen::exec([] {
    Ring ring;
    ring.nodes = *rc::gen::inRange<std::size_t>(1, 17);
    ring.ranks = ring.nodes * *rc::gen::inRange<std::size_t>(1, 9);
    if (ring.ranks < 2) ring.ranks = 2;
    ring.gbps = 0.5 * *rc::gen::inRange(1, 200);  // PCIe and NICs, with room
    ring.channels = *rc::gen::inRange(1, 17);
    ring.same_channels = *rc::gen::arbitrary<bool>();
    ring.simple_threads = *rc::gen::element(256, 512);
    return ring;
  });
}

rc::Gen<std::size_t> AnyBytes() {
  return rc::gen::map(rc::gen::pair(rc::gen::inRange(0, 33), rc::gen::inRange(0, 1000)),
                      [](std::pair<int, int> drawn) {
                        const std::size_t octave = std::size_t{1} << drawn.first;
                        return octave + octave * drawn.second / 1000;
                      });
}

rc::Gen<int> AnyFunction() { return rc::gen::element<int>(kBroadcast, kReduce); }

float AnyCost() {
  static const float kOdd[] = {-1,
                               -2.5f,
                               -0.0f,
                               0,
                               1e-30f,
                               3.6e9f,
                               1e30f,
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()};
  if (*rc::gen::arbitrary<bool>()) return kOdd[*rc::gen::inRange(0, 10)];
  return 0.001f * static_cast<float>(*rc::gen::inRange(0, 10000000));
}

bool SameBits(const Table& a, const Table& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
         });
}

// A value of WEFT_NCCL_TUNER that parses.
rc::Gen<std::string> AnyConfig() {
  return rc::gen::exec([] {
    std::string text;
    const int rules = *rc::gen::inRange(0, 4);
    for (int i = 0; i < rules; ++i) {
      text += *rc::gen::element<std::string>("", "reduce ", "broadcast ", "nvlink ", "nodes=1 ",
                                             "ranks=2-8 ", "bytes=0-1M ", "bytes=64K- ");
      text += *rc::gen::element<std::string>("proto=ll", "proto=ll128", "proto=simple channels=1",
                                             "channels=64");
      text += ";";
    }
    return text + *rc::gen::element<std::string>("", "default");
  });
}

TEST(TunerLaws, JunkIsAnsweredWithSuccessAndWithinTheTable) {
  HoldsInCases(400, [] {
    const Variable config("WEFT_NCCL_TUNER", *AnyConfig());
    const Ring ring = *AnyRing();
    const Tuner tuner(ring);
    const int algorithms = *rc::gen::inRange(0, 10), protocols = *rc::gen::inRange(0, 20);
    // Exactly as large as NCCL would say: AddressSanitizer sees what is read beyond.
    Table table(static_cast<std::size_t>(algorithms) * protocols);
    for (float& cost : table) cost = AnyCost();
    const Table before = table;
    const int function = *rc::gen::inRange(-3, 14);
    const std::size_t bytes = *rc::gen::element<std::size_t>(0, 1, 4096, std::size_t{1} << 40,
                                                             static_cast<std::size_t>(-1));
    const int pipe_ops = *rc::gen::element(-5, 0, 1, 7, std::numeric_limits<int>::max());
    const int channels = tuner.Tune(function, bytes, pipe_ops, &table, algorithms, protocols);
    RC_ASSERT(channels >= 0);
    RC_ASSERT(channels <= 64);
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (std::memcmp(&table[i], &before[i], sizeof(float)) == 0) continue;
      RC_ASSERT(before[i] >= 0);  // what NCCL does not offer stays so
      RC_ASSERT(table[i] > before[i]);
      RC_ASSERT(i / protocols == kRing);
    }
    if (function != kReduce && function != kBroadcast) {
      RC_ASSERT(SameBits(table, before));
      RC_ASSERT(channels == 0);
    }
    // Never less to choose from.
    const auto could = protocols == 0 ? std::nullopt : Pick(before, protocols);
    if (could) RC_ASSERT(Pick(table, protocols).has_value());
  });
}

TEST(TunerLaws, NullsAreAnsweredWithSuccess) {
  const Tuner tuner({});
  int channels = 0;
  Table table = CostsOf({}, 4096, 1);
  const Table before = table;
  auto** const costs = reinterpret_cast<float**>(table.data());
  EXPECT_EQ(V5().get_coll_info(nullptr, kReduce, 1, 1, costs, 7, 3, 0, &channels), 0);
  EXPECT_EQ(channels, 0);
  EXPECT_TRUE(SameBits(table, before));
  EXPECT_EQ(V5().finalize(nullptr), 0);
  EXPECT_EQ(V5().init(nullptr, 1, 2, 1, nullptr, nullptr, nullptr), 0);
  EXPECT_EQ(V4().init(2, 1, nullptr, nullptr), 0);
  void* context = nullptr;
  ASSERT_EQ(V5().init(&context, 1, 4, 1, nullptr, nullptr, nullptr), 0);
  EXPECT_EQ(V5().get_coll_info(context, kReduce, 1, 1, nullptr, 7, 3, 0, &channels), 0);
  EXPECT_EQ(V5().get_coll_info(context, kReduce, 1 << 20, 1, costs, 7, 3, 0, nullptr), 0);
  for (const int protocols : {-1, 0, 2, 17, std::numeric_limits<int>::max()}) {
    EXPECT_EQ(V5().get_coll_info(context, kReduce, 1, 1, costs, 7, protocols, 0, &channels), 0);
  }
  EXPECT_EQ(V5().finalize(context), 0);
}

TEST(TunerLaws, AnswersAreAFunctionOfTheArguments) {
  HoldsInCases(200, [] {
    const Variable config("WEFT_NCCL_TUNER", *AnyConfig());
    const Ring ring = *AnyRing();
    const Tuner a(ring, 1), b(ring, 2);  // two ranks, or two communicators alike
    struct Question {
      int function;
      std::size_t bytes;
      int pipe_ops;
    };
    std::vector<Question> questions;
    for (int i = 0; i < 8; ++i) {
      questions.push_back({*AnyFunction(), *AnyBytes(), *rc::gen::inRange(1, 10)});
    }
    std::vector<std::pair<int, Table>> answers;
    for (const Question& q : questions) {
      Table table = CostsOf(ring, q.bytes, q.pipe_ops);
      const int channels = a.Tune(q.function, q.bytes, q.pipe_ops, &table);
      answers.emplace_back(channels, table);
    }
    for (std::size_t i = questions.size(); i-- > 0;) {  // in another order
      const Question& q = questions[i];
      Table table = CostsOf(ring, q.bytes, q.pipe_ops);
      RC_ASSERT(b.Tune(q.function, q.bytes, q.pipe_ops, &table) == answers[i].first);
      RC_ASSERT(SameBits(table, answers[i].second));
    }
  });
}

TEST(TunerLaws, ChannelsGrowWithBytesAndAreNeverMoreThanNcclTakes) {
  const Variable config("WEFT_NCCL_TUNER", "");
  HoldsInCases(300, [] {
    const Ring ring = *AnyRing();
    const Tuner tuner(ring);
    const int function = *AnyFunction(), pipe_ops = *rc::gen::inRange(1, 5);
    std::vector<std::size_t> sizes;
    for (int i = 0; i < 12; ++i) sizes.push_back(*AnyBytes());
    std::sort(sizes.begin(), sizes.end());
    int taken_before = 0;
    for (const std::size_t bytes : sizes) {
      Table table = CostsOf(ring, bytes, pipe_ops);
      const int advised = tuner.Tune(function, bytes, pipe_ops, &table);
      // In a cost of a few bytes the rounding hides the bandwidth: there is no advice, nor need of
      // any.
      if (bytes >= 65536) RC_ASSERT(advised >= 1);
      const int protocol = Pick(table)->second;
      const int taken = ChannelsOf(ring, protocol, bytes, advised);
      RC_ASSERT(taken >= taken_before);
      RC_ASSERT(taken <= ChannelsOf(ring, protocol, bytes, 0));
      taken_before = taken;
    }
    // A large one still has channels for all the links carry.
    Table table = CostsOf(ring, std::size_t{1} << 30, 1);
    RC_ASSERT(20.0 * tuner.Tune(function, std::size_t{1} << 30, 1, &table) >= ring.gbps - 0.01);
  });
}

// The policy of docs/nccl-plugins.md, computed another way: from the crossover.
TEST(TunerLaws, LlIsTakenBelowTheCrossoverOfTheHopsThatAreThere) {
  const Variable config("WEFT_NCCL_TUNER", "");
  HoldsInCases(400, [] {
    const Ring ring = *AnyRing();
    const Tuner tuner(ring);
    const std::size_t bytes = *AnyBytes();
    const int pipe_ops = *rc::gen::inRange(1, 4);
    const auto n = static_cast<double>(ring.ranks), k = static_cast<double>(ring.nodes);
    const double spared = ring.nodes == 1            ? 1.8 + 3 * n
                          : ring.ranks == ring.nodes ? 1.8 + 9 * n
                                                     : 1.8 + 11.3 * k + 3 * (n - k);
    const double crossover = 1000 * ring.gbps * spared * pipe_ops;
    RC_PRE(std::abs(static_cast<double>(bytes) - crossover) > 1e-3 * crossover);
    Table table = CostsOf(ring, bytes, pipe_ops);
    const Table before = table;
    tuner.Tune(*AnyFunction(), bytes, pipe_ops, &table);
    const auto picked = Pick(table);
    RC_ASSERT(picked->first == kRing);
    RC_ASSERT(picked->second == (static_cast<double>(bytes) < crossover ? kLl : kSimple));
    // NCCL's estimate of the protocol's time is what it was; where it would have taken the same
    // one, nothing is touched.
    const std::size_t at = kRing * kProtocols + picked->second;
    RC_ASSERT(table[at] == before[at]);
    if (Pick(before) == picked) RC_ASSERT(SameBits(table, before));
  });
}

// Groups of one rank per node may have LL128, NVLink or not: all three are counted anew.
TEST(TunerLaws, Ll128IsWeighedWhereItIsOffered) {
  const Variable config("WEFT_NCCL_TUNER", "");
  int taken = 0;
  HoldsInCases(300, [&] {
    Ring ring = *AnyRing();
    ring.nodes = ring.ranks;
    ring.ll128 = true;
    const Tuner tuner(ring);
    const std::size_t bytes = *AnyBytes();
    const auto n = static_cast<double>(ring.ranks), b = static_cast<double>(bytes);
    const double cost[] = {
        6.6 + 5 * n + b / (500 * ring.gbps),
        14 + 8.5 * n + b / (1000 * std::min(.92 * ring.gbps, 20.0 * ring.channels)),
        8.4 + 14 * n + b / (1000 * ring.gbps)};
    std::vector<double> sorted(cost, cost + 3);
    std::sort(sorted.begin(), sorted.end());
    RC_PRE(sorted[1] - sorted[0] > 1e-4 * sorted[0]);
    Table table = CostsOf(ring, bytes, 1);
    tuner.Tune(*AnyFunction(), bytes, 1, &table);
    const int picked = Pick(table)->second;
    RC_ASSERT(cost[picked] == sorted[0]);
    taken += picked == kLl128;
  });
  EXPECT_GT(taken, 0);
}

// The largest size for which LL is taken.
std::size_t Crossover(const Ring& ring, const Tuner* tuner) {
  std::size_t ll = 1, simple = std::size_t{1} << 30;
  while (simple - ll > 1) {
    const std::size_t bytes = (ll + simple) / 2;
    Table table = CostsOf(ring, bytes, 1);
    if (tuner != nullptr) tuner->Tune(kReduce, bytes, 1, &table);
    (Pick(table)->second == kLl ? ll : simple) = bytes;
  }
  return ll;
}

TEST(TunerDocs, TheTableOfCrossoversIsWhatIsTaken) {
  const Variable config("WEFT_NCCL_TUNER", "");
  std::ifstream page(WEFT_SOURCE_DIR "/docs/nccl-plugins.md");
  const std::regex row(R"(\| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|)");
  int rows = 0;
  for (std::string line; std::getline(page, line);) {
    std::smatch cells;
    if (!std::regex_match(line, cells, row)) continue;
    ++rows;
    Ring ring = {.ranks = std::stoul(cells[1]), .nodes = std::stoul(cells[2])};
    const Tuner tuner(ring);
    for (const bool same : {true, false}) {
      ring.same_channels = same;
      const double nccl = std::stod(cells[same ? 3 : 4]), weft = std::stod(cells[5]);
      EXPECT_NEAR(static_cast<double>(Crossover(ring, nullptr)), nccl, 1e-4 * nccl) << line;
      EXPECT_NEAR(static_cast<double>(Crossover(ring, &tuner)), weft, 1e-4 * weft) << line;
    }
  }
  EXPECT_EQ(rows, 7);
}

void ExpectNoOpinion(const Ring& ring, const char* why) {
  const Tuner tuner(ring);
  for (std::size_t bytes = 1; bytes < std::size_t{1} << 34; bytes *= 2) {
    for (const int function : {kBroadcast, kReduce}) {
      Table table = CostsOf(ring, bytes, 1);
      const Table before = table;
      EXPECT_EQ(tuner.Tune(function, bytes, 1, &table), 0) << why << ", " << bytes << " bytes";
      EXPECT_TRUE(SameBits(table, before)) << why << ", " << bytes << " bytes";
    }
  }
}

TEST(TunerOpinion, ThereIsNoneOnNvlink) {
  const Variable config("WEFT_NCCL_TUNER", "");
  ExpectNoOpinion({.ranks = 8, .gbps = 200, .channels = 16, .nvlink = true, .ll128 = true},
                  "NVLink");
  ExpectNoOpinion({.ranks = 16, .nodes = 2, .gbps = 48, .nvlink = true, .ll128 = true},
                  "two nodes");
  ExpectNoOpinion({.ranks = 8, .gbps = 200, .same_channels = false, .nvlink = true},
                  "NCCL_PROTO hides LL128, but the latencies are NVLink's");
  ExpectNoOpinion({.ranks = 8, .gbps = 200, .same_channels = true, .nvlink = true}, "the same");
  const Variable rules("WEFT_NCCL_TUNER", "proto=ll channels=1; default");
  ExpectNoOpinion({.ranks = 8, .gbps = 200, .nvlink = true, .ll128 = true}, "rules do not name it");
}

TEST(TunerOpinion, ThereIsNoneOnDomainsThatSpanNodes) {
  const Variable config("WEFT_NCCL_TUNER", "");
  NvlDomainsV5 domains = {1, 8, 8};
  void* context = nullptr;
  ASSERT_EQ(V5().init(&context, 1, 8, 2, &Log, &domains, nullptr), 0);
  Table table = CostsOf({.ranks = 8, .nodes = 2}, 4096, 1);
  const Table before = table;
  int channels = 0;
  EXPECT_EQ(V5().get_coll_info(context, kReduce, 4096, 1, reinterpret_cast<float**>(table.data()),
                               7, 3, 0, &channels),
            0);
  EXPECT_EQ(channels, 0);
  EXPECT_TRUE(SameBits(table, before));
  EXPECT_EQ(V5().finalize(context), 0);
}

TEST(TunerOpinion, ThereIsNoneWhenOffOrNotUnderstoodAndThatIsToldOnce) {
  TakeWarnings();
  {
    const Variable config("WEFT_NCCL_TUNER", "off");
    ExpectNoOpinion({}, "off");
    EXPECT_TRUE(TakeWarnings().empty());
  }
  const Variable config("WEFT_NCCL_TUNER", "reduce proto=fast");
  ExpectNoOpinion({}, "a bad value");
  ExpectNoOpinion({}, "a bad value again");
  const std::vector<std::string> warnings = TakeWarnings();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], ::testing::HasSubstr("'proto=fast'"));
}

TEST(TunerOpinion, ThereIsNoneOfCostsThatAreNotNcclsFormula) {
  const Variable config("WEFT_NCCL_TUNER", "");
  HoldsInCases(200, [] {
    const Ring ring = *AnyRing();
    const Tuner tuner(ring);
    const std::size_t bytes = *rc::gen::inRange<std::size_t>(1, 1 << 24);
    Table table = CostsOf(ring, bytes, 1);
    table[kRing * kProtocols + kLl] *= *rc::gen::element(0.97f, 1.03f);  // a later NCCL's constants
    const Table before = table;
    const int channels = tuner.Tune(kReduce, bytes, 1, &table);
    // By chance it may be the formula of the other order of ranks.
    RC_PRE(channels == 0);
    RC_ASSERT(SameBits(table, before));
  });
}

TEST(TunerOpinion, ThereIsNoneOnOneRank) {
  const Variable config("WEFT_NCCL_TUNER", "");
  const Tuner tuner({.ranks = 1});
  Table table(std::size_t{kAlgorithms} * kProtocols, -1.0f);
  table[kRing * kProtocols + kSimple] = 0;
  const Table before = table;
  EXPECT_EQ(tuner.Tune(kReduce, 4096, 1, &table), 0);
  EXPECT_TRUE(SameBits(table, before));
}

TEST(TunerRules, TheFirstThatHoldsIsTaken) {
  const Variable config("WEFT_NCCL_TUNER",
                        "reduce nodes=1 bytes=0-64K proto=simple; reduce nodes=1 channels=3;"
                        "broadcast ranks=4 proto=ll channels=1");
  const Ring ring;
  const Tuner tuner(ring), elsewhere({.ranks = 8, .nodes = 2});
  const auto ask = [&](const Tuner& whose, int function, std::size_t bytes) {
    Table table = CostsOf(ring, bytes, 1);
    const int channels = whose.Tune(function, bytes, 1, &table);
    return std::pair<int, int>(Pick(table)->second, channels);
  };
  EXPECT_EQ(ask(tuner, kReduce, 64 << 10), (std::pair<int, int>(kSimple, 0)));
  EXPECT_EQ(ask(tuner, kReduce, (64 << 10) + 1), (std::pair<int, int>(kLl, 3)))
      << "NCCL's protocol";
  EXPECT_EQ(ask(tuner, kBroadcast, 1 << 28), (std::pair<int, int>(kLl, 1)));
  EXPECT_EQ(ask(elsewhere, kReduce, 1 << 28), (std::pair<int, int>(kSimple, 0))) << "no rule holds";
}

TEST(TunerRules, NeverMakeAvailableWhatNcclDoesNotOffer) {
  const Variable config("WEFT_NCCL_TUNER", "nvlink proto=ll128");
  const Tuner tuner({});
  Table table = CostsOf({}, 1 << 20, 1);
  const Table before = table;
  tuner.Tune(kReduce, 1 << 20, 1, &table);
  EXPECT_TRUE(SameBits(table, before));
  Table nvlink = CostsOf({.nvlink = true, .ll128 = true}, 1 << 20, 1);
  tuner.Tune(kReduce, 1 << 20, 1, &nvlink);
  EXPECT_EQ(Pick(nvlink)->second, kLl128);
}

TEST(TunerVersions, Version4AdvisesAsVersion5) {
  const Variable config("WEFT_NCCL_TUNER", "");
  HoldsInCases(100, [] {
    const Ring ring = *AnyRing();
    const Tuner tuner(ring);
    void* context = nullptr;
    RC_ASSERT(V4().init(ring.ranks, ring.nodes, &Log, &context) == 0);
    const std::size_t bytes = *AnyBytes();
    Table five = CostsOf(ring, bytes, 2), four = five;
    int channels = 0;
    RC_ASSERT(V4().get_coll_info(context, kReduce, bytes, 2, reinterpret_cast<float**>(four.data()),
                                 kAlgorithms, kProtocols, 1, &channels) == 0);
    RC_ASSERT(tuner.Tune(kReduce, bytes, 2, &five) == channels);
    RC_ASSERT(SameBits(five, four));
    RC_ASSERT(V4().destroy(context) == 0);
  });
}

}  // namespace
}  // namespace weft::testing
