#include "runtime/step_recorder.h"

#include <gtest/gtest.h>

namespace weft::runtime {
namespace {

Op OpOn(Lane lane, OpKind kind) {
  return Op{.kind = kind, .lane = lane, .stage = Stage::kReduced, .trigger = Trigger::kStepClosed};
}

TEST(StepRecorder, HasNothingBeforeAStepIsComplete) {
  StepRecorder recorder;
  recorder.StepCalled(0, 100);
  EXPECT_FALSE(recorder.LastComplete().has_value());
  recorder.Complete(0);
  EXPECT_TRUE(recorder.LastComplete().has_value());
}

TEST(StepRecorder, AddsUpLanesAndMeasuresTheOptimizerToTheLastDelivery) {
  StepRecorder recorder;
  recorder.AddJob(3);
  recorder.AddJob(3);
  recorder.AddHostTime(3, 6000);
  recorder.StepCalled(3, 1'000'000'000);
  recorder.AddOp(3, OpOn(Lane::kIntra, OpKind::kReduce), 10, 0, 2'000'000'000, false);
  recorder.AddOp(3, OpOn(Lane::kInter, OpKind::kBroadcast), 7, 0, 1'000'000'000, false);
  recorder.AddOp(3, OpOn(Lane::kInter, OpKind::kBroadcast), 7, 4'000'000'000, 5'000'000'000, true);
  recorder.AddOp(3, OpOn(Lane::kCompute, OpKind::kOrthogonalize), 0, 0, 3'000'000'000, false);
  recorder.AddOp(3, OpOn(Lane::kCompute, OpKind::kApply), 0, 3'000'000'000, 4'000'000'000, false);
  recorder.Complete(3);
  const StepMetrics metrics = *recorder.LastComplete();
  EXPECT_EQ(metrics.step, 3);
  EXPECT_EQ(metrics.jobs, 2);
  EXPECT_DOUBLE_EQ(metrics.host_microseconds_per_job, 3);
  EXPECT_DOUBLE_EQ(metrics.optimizer_seconds, 4);
  EXPECT_EQ(metrics.step_called, 1'000'000'000);
  EXPECT_EQ(metrics.last_delivered, 5'000'000'000);
  EXPECT_DOUBLE_EQ(metrics.ns_seconds, 3);
  EXPECT_DOUBLE_EQ(metrics.compute_seconds, 4);
  EXPECT_DOUBLE_EQ(metrics.lane_seconds[static_cast<int>(Lane::kInter)], 2);
  EXPECT_EQ(metrics.lane_bytes[static_cast<int>(Lane::kInter)], 14);
  EXPECT_EQ(metrics.lane_bytes[static_cast<int>(Lane::kIntra)], 10);
  EXPECT_EQ(metrics.lane_bytes[static_cast<int>(Lane::kCompute)], 0);
}

TEST(StepRecorder, ExposedCommunicationIsWaitingWhileTheComputeLaneIsIdle) {
  StepRecorder recorder;
  recorder.AddOp(0, OpOn(Lane::kCompute, OpKind::kOrthogonalize), 0, 2'000'000'000, 4'000'000'000,
                 false);
  recorder.AddWait(0, 0, 3'000'000'000);              // 1 s of it is hidden
  recorder.AddWait(0, 5'000'000'000, 6'000'000'000);  // none of it is
  recorder.Complete(0);
  EXPECT_DOUBLE_EQ(recorder.LastComplete()->exposed_communication_seconds, 3);
}

TEST(OptimizerSeconds, RunsFromTheLastCallToTheLastDelivery) {
  StepMetrics early, late;
  early.step_called = 1'000'000'000;
  early.last_delivered = 5'000'000'000;
  late.step_called = 3'000'000'000;
  late.last_delivered = 4'500'000'000;
  EXPECT_DOUBLE_EQ(OptimizerSeconds({early, late}), 2);
  EXPECT_DOUBLE_EQ(OptimizerSeconds({}), 0);
}

TEST(Imbalance, IsTheSlowestOverTheMean) {
  StepMetrics slow, fast;
  slow.compute_seconds = 3;
  fast.compute_seconds = 1;
  EXPECT_DOUBLE_EQ(Imbalance({slow, fast}), 1.5);
  EXPECT_DOUBLE_EQ(Imbalance({}), 1);
  EXPECT_DOUBLE_EQ(Imbalance({StepMetrics{}, StepMetrics{}}), 1);
}

}  // namespace
}  // namespace weft::runtime
