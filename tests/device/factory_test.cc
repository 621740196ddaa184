// Devices that this build or machine does not have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "weft/device.h"
#include "weft/transport.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(CudaFactory, WithoutItsLibraryThereIsOneSentence) {
  ::setenv("WEFT_CUDA_PLUGIN", "none", 1);
  const absl::Status status = CreateCudaDevice().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "the CUDA library is not to be used: WEFT_CUDA_PLUGIN is none");
  ::setenv("WEFT_CUDA_PLUGIN", "/no/such/library.so", 1);
  EXPECT_THAT(std::string(CreateCudaDevice().status().message()),
              HasSubstr("/no/such/library.so: cannot open shared object file"));
  ::unsetenv("WEFT_CUDA_PLUGIN");
}

TEST(CudaFactory, BadOptionsAreRefusedBeforeAnythingIsLoaded) {
  ::setenv("WEFT_CUDA_PLUGIN", "none", 1);
  EXPECT_EQ(CreateCudaDevice({.ordinal = -1}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateCudaDevice({.reserved_processors = -1}).status().code(),
            absl::StatusCode::kInvalidArgument);
  ::unsetenv("WEFT_CUDA_PLUGIN");
}

TEST(CudaFactory, TheHostHasNoStreamsOfItsOwn) {
  const auto host = *CreateHostDevice();
  EXPECT_EQ(host->AdoptStream(nullptr, "s").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(host->AdoptEvent(nullptr).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(host->CreateStream("s")->native(), nullptr);
  EXPECT_EQ(host->hardware_queues(), 0);
}

}  // namespace
}  // namespace weft
