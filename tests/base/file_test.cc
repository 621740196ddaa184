#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

namespace weft::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  FileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weft-file-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ / "file";
    std::ofstream(path_) << "0123456789";
  }
  ~FileTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(FileTest, ReadsAnyPart) {
  const auto file = File::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size(), 10u);
  std::array<std::byte, 3> part;
  ASSERT_TRUE(file->Read(7, absl::MakeSpan(part)).ok());
  EXPECT_EQ(part[0], std::byte{'7'});
  EXPECT_EQ(part[2], std::byte{'9'});
  EXPECT_TRUE(file->Read(10, {}).ok());
  EXPECT_EQ(*ReadFile(path_, 10), "0123456789");
  EXPECT_THAT(std::string(ReadFile(path_, 9).status().message()),
              AllOf(HasSubstr(path_), HasSubstr("larger than 9 bytes")));
}

// A test that hangs here has found a FIFO opened without O_NONBLOCK.
TEST_F(FileTest, RefusesWhatIsNoRegularFile) {
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, folder_.string(), std::string("/dev/zero")}) {
    const absl::Status status = File::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr("regular file")));
  }
  EXPECT_EQ(File::Open(folder_ / "none").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FileTest, AFileCutOffMeanwhileIsAnError) {
  const auto file = File::Open(path_);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path_, 4);
  std::array<std::byte, 8> all;
  const absl::Status status = file->Read(0, absl::MakeSpan(all));
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path_), HasSubstr("ends at byte 4")));
}

}  // namespace
}  // namespace weft::base
