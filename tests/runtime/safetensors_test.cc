#include "weft/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <set>

#include "runtime/safetensors/atomic_file.h"
#include "tests/support/seed.h"
#include "tests/support/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using Folder = testing::TemporaryFolder;
using testing::ReadAll;
using testing::WriteAll;

std::string File(const std::string& header, std::size_t data_bytes,
                 std::optional<std::uint64_t> length = std::nullopt) {
  const std::uint64_t size = length.value_or(header.size());
  std::string text(8, '\0');
  std::memcpy(text.data(), &size, 8);
  return text + header + std::string(data_bytes, 'x');
}

absl::Status OpenText(const std::string& contents) {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  WriteAll(path, contents);
  return SafetensorsReader::Open(path).status();
}

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

TEST(Safetensors, ReadsAFileWrittenByHand) {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  WriteAll(path, File(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[],)"
                      R"("data_offsets":[8,9]},"a":{"dtype":"F32","shape":[2,1],)"
                      R"("data_offsets":[0,8]},"empty":{"shape":[3,0],"data_offsets":[8,8],)"
                      R"("dtype":"I64"}}  )",
                      9));
  const auto reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto& entries = (*reader)->entries();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[0].shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(entries[1].name, "empty");
  EXPECT_EQ((*reader)->ReadAll(entries[1])->size(), 0u);
  EXPECT_EQ(entries[2].name, "b");
  EXPECT_TRUE(entries[2].shape.empty());
  EXPECT_EQ((*reader)->ReadAll(entries[2])->size(), 1u);
  EXPECT_EQ((*reader)->metadata().at("format"), "pt");
}

struct Damage {
  const char* name;
  std::string contents;
  const char* message;
};
void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }
class Damaged : public ::testing::TestWithParam<Damage> {};

TEST_P(Damaged, IsRefusedWithOneSentence) {
  const absl::Status status = OpenText(GetParam().contents);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.safetensors: "));
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
}

std::string Entry(const std::string& fields) { return "{\"w\":{" + fields + "}}"; }
constexpr char kGood[] = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";

INSTANTIATE_TEST_SUITE_P(
    Safetensors, Damaged,
    ::testing::Values(
        Damage{"Empty", "", "too few"}, Damage{"Short", "1234567", "too few"},
        Damage{"LengthBeyondFile", File(Entry(kGood), 8, 4000), "cut off"},
        Damage{"LengthBeyondFormat", File(Entry(kGood), 8, 100'000'001), "100 MB"},
        Damage{"LengthWraps", File(Entry(kGood), 8, ~std::uint64_t{0}), "100 MB"},
        Damage{"LengthZero", File("", 8), "does not begin with {"},
        Damage{"NotJson", File("{\"w\": nonsense}", 8), "not valid JSON"},
        Damage{"Padded", File(" " + Entry(kGood), 8), "does not begin with {"},
        Damage{"TrailingText", File(Entry(kGood) + "{}", 8), "not valid JSON"},
        Damage{"TextAfterAZeroByte", File(Entry(kGood) + std::string("\0garbage", 8), 8),
               "not valid JSON"},
        Damage{"PaddedWithZeroBytes", File(Entry(kGood) + std::string(3, '\0'), 8),
               "not valid JSON"},
        Damage{"BrokenUtf8", File("{\"w\xff\":{}}", 0), "not valid JSON in UTF-8"},
        Damage{"List", File("[]", 0), "does not begin with {"},
        Damage{"EntryIsNumber", File(R"({"w":3})", 0), "entry \"w\" is a number"},
        Damage{"EntryIsNull", File(R"({"w":null})", 0), "entry \"w\" is null"},
        Damage{"EntryIsList", File(R"({"w":[]})", 0), "entry \"w\" is a list"},
        Damage{"DeepLists", File(R"({"w":{"dtype":"F32","shape":)" + std::string(100000, '['), 0),
               "tensor \"w\" has a list in its shape"},
        Damage{"DeepObjects",
               [] {
                 std::string text;
                 for (int i = 0; i < 100000; ++i) text += R"({"w":)";
                 return File(text, 0);
               }(),
               "unknown field \"w\""},
        Damage{"DuplicateName",
               File(R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                    R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                    1),
               "the name \"w\" appears twice"},
        Damage{"DuplicateMetadata", File(R"({"__metadata__":{},"__metadata__":{}})", 0),
               "\"__metadata__\" appears twice"},
        Damage{"DuplicateMetadataKey", File(R"({"__metadata__":{"a":"1","a":"2"}})", 0),
               "metadata key \"a\" appears twice"},
        Damage{"MetadataIsNumber", File(R"({"__metadata__":{"a":1}})", 0), "metadata key \"a\""},
        Damage{"DuplicateField", File(Entry(std::string(kGood) + R"(,"dtype":"F32")"), 8),
               "tensor \"w\" has dtype twice"},
        Damage{"UnknownField", File(Entry(std::string(kGood) + R"(,"stride":[1])"), 8),
               "unknown field \"stride\""},
        Damage{"NoShape", File(Entry(R"("dtype":"F32","data_offsets":[0,8])"), 8),
               "tensor \"w\" has no shape"},
        Damage{"NoOffsets", File(Entry(R"("dtype":"F32","shape":[2])"), 8),
               "tensor \"w\" has no data_offsets"},
        Damage{"OneOffset", File(Entry(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), 8),
               "has 1 data_offsets"},
        Damage{"ThreeOffsets",
               File(Entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), 8),
               "more than two data_offsets"},
        Damage{"UnknownDtype", File(Entry(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"), 8),
               "tensor \"w\" has the unknown dtype \"F31\""},
        Damage{"DtypeIsNumber", File(Entry(R"("dtype":32,"shape":[2],"data_offsets":[0,8])"), 8),
               "tensor \"w\" has a number for its dtype"},
        Damage{"NegativeShape",
               File(Entry(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8),
               "negative number in shape"},
        Damage{"FractionalShape",
               File(Entry(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), 8),
               "\"2.0\" in shape, which is not an integer"},
        Damage{"StringShape", File(Entry(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])"), 8),
               "a string in its shape"},
        Damage{"HugeExtent",
               File(Entry(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8])"), 8),
               "beyond 2^63"},
        Damage{
            "BeyondSixtyFourBits",
            File(Entry(R"("dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,8])"), 8),
            "not an integer of 64 bits"},
        Damage{
            "OverflowingShape",
            File(Entry(R"("dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8])"),
                 8),
            "beyond 2^63 - 1 bytes"},
        Damage{
            "OverflowToZero",
            File(Entry(R"("dtype":"F32","shape":[9223372036854775807,0],"data_offsets":[0,0])"), 0),
            "beyond 2^63 - 1 bytes"},
        Damage{"ManyDimensions",
               [] {
                 std::string ones = "1";
                 for (int i = 0; i < 64; ++i) ones += ",1";
                 return File(Entry(R"("dtype":"U8","data_offsets":[0,1],"shape":[)" + ones + "]"),
                             1);
               }(),
               "more than 64 dimensions"},
        Damage{"WrongSize", File(Entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8),
               "has 8 bytes where F32 [3] needs 12"},
        Damage{"Backwards", File(Entry(R"("dtype":"F32","shape":[0],"data_offsets":[8,0])"), 8),
               "ends at byte 0, before its begin 8"},
        Damage{"Truncated", File(Entry(kGood), 7), "truncated"},
        Damage{"TrailingData", File(Entry(kGood), 9), "ends at byte 8 of 9"},
        Damage{"Gap",
               File(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                    R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                    3),
               "tensor \"b\" begins at byte 2, with a gap"},
        Damage{"Overlap",
               File(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                    R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                    3),
               "tensor \"b\" begins at byte 1 inside the tensor before it"}),
    [](const auto& damage) { return std::string(damage.param.name); });

TEST(Safetensors, MissingFilesAndFoldersAreNamed) {
  const Folder folder;
  const auto missing = SafetensorsReader::Open(folder / "none.safetensors");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("none.safetensors"));
  const auto folder_status = SafetensorsReader::Open(folder / ".").status();
  EXPECT_EQ(folder_status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(Safetensors, AFileCutOffWhileItIsReadIsAnError) {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  WriteAll(path, File(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8));
  const auto reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok());
  fs::resize_file(path, fs::file_size(path) - 4);
  const auto data = (*reader)->ReadAll((*reader)->entries()[0]);
  EXPECT_EQ(data.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(data.status().message()), HasSubstr("model.safetensors: ends at byte"));
}

TEST(Safetensors, WriterRefusesBeforeItWrites) {
  const Folder folder;
  const std::string path = folder / "out.safetensors";
  const std::string four = "abcd";
  const auto write = [&](std::vector<SafetensorsTensor> tensors) {
    return WriteSafetensors(path, tensors);
  };
  EXPECT_THAT(std::string(write({{"w", "F32", {2}, Bytes(four)}}).message()),
              HasSubstr("tensor \"w\" has 4 bytes where F32 [2] needs 8"));
  EXPECT_THAT(
      std::string(write({{"w", "F32", {1}, Bytes(four)}, {"w", "F32", {}, Bytes(four)}}).message()),
      HasSubstr("\"w\" is given twice"));
  EXPECT_THAT(std::string(write({{"__metadata__", "F32", {1}, Bytes(four)}}).message()),
              HasSubstr("keeps for its metadata"));
  EXPECT_THAT(std::string(write({{"w", "F31", {1}, Bytes(four)}}).message()),
              HasSubstr("unknown dtype"));
  EXPECT_THAT(std::string(write({{"w", "F32", {-1}, Bytes(four)}}).message()),
              HasSubstr("negative extent"));
  EXPECT_THAT(std::string(write({{"w\xff", "F32", {1}, Bytes(four)}}).message()),
              HasSubstr("not UTF-8"));
  EXPECT_EQ(folder.Files(), 0u);
}

TEST(Safetensors, WriterKeepsTheOldFileWhenItFails) {
  const Folder folder;
  const std::string path = folder / "out.safetensors";
  WriteAll(path, "old");
  EXPECT_FALSE(WriteSafetensors(path, {{"w", "F32", {2}, {}}}).ok());
  EXPECT_EQ(ReadAll(path), "old");
  const std::string blocked = folder / "none/out.safetensors";
  const absl::Status status = WriteSafetensors(blocked, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(blocked));
  EXPECT_EQ(folder.Files(), 1u);
}

TEST(WriteFileAtomically, ReplacesContentsAndLeavesNothingBeside) {
  const Folder folder;
  const std::string path = folder / "file";
  EXPECT_TRUE(WriteFileAtomically(path, Bytes("first")).ok());
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_TRUE(CheckWritable(path).ok());
  EXPECT_EQ(ReadAll(path), "first");
  EXPECT_TRUE(WriteFileAtomically(path, Bytes("second")).ok());
  EXPECT_EQ(ReadAll(path), "second");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(folder.Files(), 1u);
}

TEST(WriteFileAtomically, WritesThroughASymbolicLink) {
  const Folder folder;
  WriteAll(folder / "file", "first");
  fs::create_symlink("file", folder / "link");
  EXPECT_TRUE(WriteFileAtomically(folder / "link", Bytes("second")).ok());
  EXPECT_EQ(ReadAll(folder / "file"), "second");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
}

using safetensors::AtomicFile;

// What a process that is killed leaves is what is there before Commit().
TEST(AtomicFileTest, NothingIsThereBeforeItIsComplete) {
  for (const bool replaces : {false, true}) {
    const Folder folder;
    const std::string path = folder / "file";
    if (replaces) WriteAll(path, "old");
    auto file = AtomicFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    if ((*file)->kind() != AtomicFile::Kind::kNameless) {
      GTEST_SKIP() << "this file system has no files without names";
    }
    ASSERT_TRUE((*file)->Write(Bytes("new")).ok());
    EXPECT_EQ(folder.Files(), replaces ? 1u : 0u);
    EXPECT_EQ(ReadAll(path), replaces ? "old" : "");
    ASSERT_TRUE((*file)->Commit().ok());
    EXPECT_EQ(ReadAll(path), "new");
    file->reset();
    EXPECT_EQ(folder.Files(), 1u);
    EXPECT_EQ(ReadAll(path), "new");
  }
}

TEST(AtomicFileTest, ANameThatIsTakenMeanwhileIsReplaced) {
  const Folder folder;
  const std::string path = folder / "file";
  auto file = AtomicFile::Create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Write(Bytes("new")).ok());
  WriteAll(path, "somebody else's");
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(ReadAll(path), "new");
  EXPECT_EQ(folder.Files(), 1u);
}

TEST(AtomicFileTest, TheNamedOneGoesUnlessItIsComplete) {
  const Folder folder;
  const std::string path = folder / "file";
  WriteAll(path, "old");
  {
    const auto file = AtomicFile::Create(path, AtomicFile::Kind::kNamed);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ((*file)->kind(), AtomicFile::Kind::kNamed);
    ASSERT_TRUE((*file)->Write(Bytes("new")).ok());
    EXPECT_EQ(folder.Files(), 2u);
  }
  EXPECT_EQ(folder.Files(), 1u);
  EXPECT_EQ(ReadAll(path), "old");
  const auto file = AtomicFile::Create(path, AtomicFile::Kind::kNamed);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Write(Bytes("new")).ok());
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(ReadAll(path), "new");
  EXPECT_EQ(folder.Files(), 1u);
}

TEST(AtomicFileTest, BothKindsKeepThePermissionsOfWhatTheyReplace) {
  for (const AtomicFile::Kind kind : {AtomicFile::Kind::kNameless, AtomicFile::Kind::kNamed}) {
    const Folder folder;
    const std::string path = folder / "file";
    WriteAll(path, "old");
    const fs::perms strange = fs::perms::owner_all | fs::perms::others_read;
    fs::permissions(path, strange);
    const auto file = AtomicFile::Create(path, kind);
    ASSERT_TRUE(file.ok() && (*file)->Commit().ok());
    EXPECT_EQ(fs::status(path).permissions(), strange);
  }
}

TEST(CheckWritable, RefusesWhatIsNoFile) {
  const Folder folder;
  EXPECT_EQ(CheckWritable(folder / ".").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckWritable("").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckWritable(folder / "none/file").code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(CheckWritable(folder / "file").ok());
  EXPECT_EQ(folder.Files(), 0u);
}

struct Drawn {
  std::vector<SafetensorsTensor> tensors;
  std::vector<std::string> data;
  std::map<std::string, std::string> metadata;
};

// Any names that JSON can carry, shapes with zeros and scalars, every element size.
std::unique_ptr<Drawn> DrawFile() {
  auto drawn = std::make_unique<Drawn>();
  const auto text = [] {
    return rc::gen::map(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 6)),
                        [](const std::vector<int>& picks) {
                          static const char* kParts[] = {"a", ".", "\"", "\n", "\u00e9", "\\"};
                          std::string name;
                          for (const int pick : picks) name += kParts[pick];
                          return name;
                        });
  };
  const auto names = *rc::gen::unique<std::vector<std::string>>(text());
  for (const std::string& name : names) {
    SafetensorsTensor tensor;
    tensor.name = name;
    tensor.dtype = *rc::gen::elementOf(std::vector<std::string>{"U8", "BF16", "F16", "F32", "I64"});
    tensor.shape = *rc::gen::resize(
        3, rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 4)));
    std::size_t bytes = static_cast<std::size_t>(*SafetensorsElementBytes(tensor.dtype));
    for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::size_t>(extent);
    drawn->data.push_back(*rc::gen::container<std::string>(bytes, rc::gen::arbitrary<char>()));
    drawn->tensors.push_back(std::move(tensor));
  }
  for (std::size_t i = 0; i < names.size(); ++i) drawn->tensors[i].data = Bytes(drawn->data[i]);
  drawn->metadata = *rc::gen::container<std::map<std::string, std::string>>(text(), text());
  return drawn;
}

RC_GTEST_PROP(Safetensors, RoundTripKeepsEverything, ()) {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  const auto drawn = DrawFile();
  RC_ASSERT(WriteSafetensors(path, drawn->tensors, drawn->metadata).ok());
  const auto reader = SafetensorsReader::Open(path);
  RC_ASSERT(reader.ok());
  RC_ASSERT((*reader)->metadata() == drawn->metadata);
  RC_ASSERT((*reader)->entries().size() == drawn->tensors.size());
  for (const SafetensorsEntry& entry : (*reader)->entries()) {
    const auto found =
        std::find_if(drawn->tensors.begin(), drawn->tensors.end(),
                     [&](const SafetensorsTensor& tensor) { return tensor.name == entry.name; });
    RC_ASSERT(found != drawn->tensors.end());
    RC_ASSERT(entry.dtype == found->dtype);
    RC_ASSERT(entry.shape == found->shape);
    const auto data = (*reader)->ReadAll(entry);
    RC_ASSERT(data.ok());
    RC_ASSERT(std::equal(data->begin(), data->end(), found->data.begin(), found->data.end()));
    // Who maps the file finds every tensor aligned.
    std::uint64_t length;
    std::memcpy(&length, ReadAll(path).data(), 8);
    const std::int64_t element = *SafetensorsElementBytes(entry.dtype);
    RC_ASSERT((8 + length + entry.begin) % static_cast<std::uint64_t>(element) == 0u);
    if (data->size() < 2) continue;
    std::vector<std::byte> part(data->size() - 2);
    RC_ASSERT((*reader)->Read(entry, 1, absl::MakeSpan(part)).ok());
    RC_ASSERT(std::equal(part.begin(), part.end(), data->begin() + 1));
  }
  RC_ASSERT(folder.Files() == 1u);
}

// Every damaged file is either refused or read within its bounds; the sanitizers watch.
TEST(Safetensors, MutatedFilesNeverLeaveTheirBounds) {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  const std::string good = File(
      R"({"__metadata__":{"format":"pt"},"layer.0.w":{"dtype":"F32","shape":[2,3],)"
      R"("data_offsets":[0,24]},"layer.0.b":{"dtype":"BF16","shape":[3],"data_offsets":[24,30]},)"
      R"("e":{"dtype":"I8","shape":[0,7],"data_offsets":[30,30]}})",
      30);
  std::mt19937_64 random(testing::Seed());
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  static const std::string kLikely("{}[]\",:0123456789-.eE\\u\xff\xc3\0", 26);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string mutated = good;
    for (std::size_t i = 0, changes = 1 + below(4); i < changes && !mutated.empty(); ++i) {
      const std::size_t at = below(mutated.size());
      switch (below(5)) {
        case 0:
          mutated[at] = static_cast<char>(random());
          break;
        case 1:
          mutated[at] = kLikely[below(kLikely.size())];
          break;
        case 2:
          mutated[at] = static_cast<char>(mutated[at] ^ (1 << below(8)));
          break;
        case 3:
          mutated.resize(at);
          break;
        default:
          mutated.insert(at, 1, kLikely[below(kLikely.size())]);
      }
    }
    WriteAll(path, mutated);
    const auto reader = SafetensorsReader::Open(path);
    if (!reader.ok()) {
      ++refused;
      ASSERT_EQ(reader.status().code(), absl::StatusCode::kInvalidArgument) << reader.status();
      ASSERT_EQ(reader.status().message().find('\n'), absl::string_view::npos);
      continue;
    }
    unsigned sum = 0;
    std::uint64_t bytes = 0;
    for (const SafetensorsEntry& entry : (*reader)->entries()) {
      const auto data = (*reader)->ReadAll(entry);
      ASSERT_TRUE(data.ok()) << data.status();
      for (const std::byte byte : *data) sum += static_cast<unsigned>(byte);
      bytes += entry.end - entry.begin;
    }
    ASSERT_LE(bytes, mutated.size());
    ASSERT_LE(sum, 255 * bytes);
  }
  EXPECT_GT(refused, 400);
}

}  // namespace
}  // namespace weft
