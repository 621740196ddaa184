// Case 25: fewer hardware queues than streams that work side by side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/commit.h"
#include "tests/support/forwarding.h"
#include "weft/log.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class QueuedDevice final : public testing::ForwardingDevice {
 public:
  QueuedDevice(Device& device, int queues) : ForwardingDevice(device), queues_(queues) {}
  int hardware_queues() const override { return queues_; }

 private:
  const int queues_;
};

// What rank 0 of a world says at Commit().
std::vector<std::string> Said(const ProcessGrid& grid, int queues) {
  std::vector<std::string> said;
  SetLogSink([&](LogLevel level, std::string_view sentence) {
    EXPECT_EQ(level, LogLevel::kWarning);
    if (sentence.rfind("rank 0:", 0) == 0) said.emplace_back(sentence);
  });
  testing::RunWorld({.grid = grid}, [&](testing::Rank rank) {
    testing::RankModel model({{8, 8}, {6, 4}}, Layout::kReplicated, GradientKind::kLocal, rank.rank,
                             grid.size(), 5);
    QueuedDevice device(rank.device, queues);
    (void)testing::Commit(testing::OptionsFor(grid), {rank.rank, device, rank.transport}, model);
  });
  SetLogSink(nullptr);
  return said;
}

TEST(Advice, OneConnectionForThreeLanesIsAWarningThatSaysWhatToSet) {
  EXPECT_THAT(Said({2, 2}, 1), ElementsAre(AllOf(HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS is 1"),
                                                 HasSubstr("the 4 streams"),
                                                 HasSubstr("Set CUDA_DEVICE_MAX_CONNECTIONS=8"))));
}

TEST(Advice, EnoughQueuesAreNoNews) {
  EXPECT_THAT(Said({2, 2}, 4), IsEmpty());
  EXPECT_THAT(Said({2, 2}, 3), ::testing::SizeIs(1));
  EXPECT_THAT(Said({1, 1}, 2), IsEmpty());
  EXPECT_THAT(Said({2, 2}, 0), IsEmpty()) << "the host has no such limit";
}

}  // namespace
}  // namespace weft
