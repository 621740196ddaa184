#include "runtime/safetensors/header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace weft {
namespace safetensors {
namespace {

constexpr int kMostDimensions = 64;

struct Element {
  std::string_view name;
  std::int64_t bytes;
};
constexpr Element kElements[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
    {"F32", 4},  {"I64", 8}, {"U64", 8}, {"F64", 8},     {"C64", 8},
};

// Reads the header event by event. A tree built first would silently keep the last of two entries
// with one name, and take several times the memory of the text.
class Handler {
 public:
  using Json = nlohmann::json;

  explicit Handler(std::string file) : file_(std::move(file)) {}

  absl::Status status() const { return status_; }
  Header TakeHeader() { return std::move(header_); }

  // The names that nlohmann-json asks for.
  bool null() { return Unexpected("null"); }
  bool boolean(bool) { return Unexpected("a truth value"); }
  bool number_integer(Json::number_integer_t) {
    if (!InNumbers()) return Unexpected("a number");
    return Fail(absl::StrCat(Subject(), " has a negative number in ", field_));
  }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (place_ == Place::kShape) {
      if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
        return Fail(absl::StrCat(Subject(), " has an extent beyond 2^63 - 1"));
      }
      if (entry_.shape.size() == kMostDimensions) {
        return Fail(absl::StrCat(Subject(), " has more than ", kMostDimensions, " dimensions"));
      }
      entry_.shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offsets_.size() == 2) {
        return Fail(absl::StrCat(Subject(), " has more than two data_offsets"));
      }
      offsets_.push_back(value);
      return true;
    }
    return Unexpected("a number");
  }
  bool number_float(Json::number_float_t, const std::string& text) {
    if (!InNumbers()) return Unexpected("a number");
    return Fail(absl::StrCat(Subject(), " has ", Printable(text), " in ", field_,
                             ", which is not an integer of 64 bits"));
  }
  bool string(std::string& value) {
    if (place_ == Place::kMetadata) {
      header_.metadata[key_] = value;
      return true;
    }
    if (place_ == Place::kEntry && field_ == "dtype") {
      entry_.dtype = value;
      return true;
    }
    return Unexpected("a string");
  }
  bool binary(Json::binary_t&) { return Unexpected("binary data"); }

  bool start_object(std::size_t) {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
      return true;
    }
    if (place_ != Place::kTop) return Unexpected("an object");
    if (key_ == kMetadataKey) {
      place_ = Place::kMetadata;
      return true;
    }
    place_ = Place::kEntry;
    entry_ = {};
    entry_.name = key_;
    offsets_.clear();
    fields_.fill(false);
    field_.clear();
    return true;
  }
  bool key(std::string& name) {
    if (place_ == Place::kTop) {
      if (!names_.insert(name).second) {
        return Fail(absl::StrCat("the name ", Printable(name), " appears twice"));
      }
      key_ = name;
      return true;
    }
    if (place_ == Place::kMetadata) {
      if (header_.metadata.count(name) != 0) {
        return Fail(absl::StrCat("the metadata key ", Printable(name), " appears twice"));
      }
      key_ = name;
      return true;
    }
    const int which = name == "dtype" ? 0 : name == "shape" ? 1 : name == "data_offsets" ? 2 : 3;
    if (which == 3) {
      return Fail(absl::StrCat(Subject(), " has an unknown field ", Printable(name)));
    }
    if (fields_[which]) return Fail(absl::StrCat(Subject(), " has ", name, " twice"));
    fields_[which] = true;
    field_ = name;
    return true;
  }
  bool end_object() {
    if (place_ == Place::kMetadata) {
      place_ = Place::kTop;
      return true;
    }
    if (place_ == Place::kTop) {
      place_ = Place::kEnd;
      return true;
    }
    for (int which = 0; which < 3; ++which) {
      static constexpr const char* kFields[] = {"dtype", "shape", "data_offsets"};
      if (!fields_[which]) return Fail(absl::StrCat(Subject(), " has no ", kFields[which]));
    }
    if (offsets_.size() != 2) {
      return Fail(absl::StrCat(Subject(), " has ", offsets_.size(), " data_offsets, not 2"));
    }
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header_.entries.push_back(std::move(entry_));
    place_ = Place::kTop;
    return true;
  }
  bool start_array(std::size_t) {
    if (place_ != Place::kEntry || field_ == "dtype" || field_.empty()) {
      return Unexpected("a list");
    }
    place_ = field_ == "shape" ? Place::kShape : Place::kOffsets;
    return true;
  }
  bool end_array() {
    place_ = Place::kEntry;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    // 101: syntax, with broken UTF-8 among it; the parser's own sentence quotes raw input.
    (void)error;
    return Fail(absl::StrCat("the header is not valid JSON in UTF-8 at byte ", position));
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kEntry, kShape, kOffsets, kEnd };

  bool InNumbers() const { return place_ == Place::kShape || place_ == Place::kOffsets; }
  std::string Subject() const { return absl::StrCat("tensor ", Printable(entry_.name)); }
  bool Fail(const std::string& what) {
    status_ = absl::InvalidArgumentError(absl::StrCat(file_, ": ", what));
    return false;
  }
  bool Unexpected(const std::string& what) {
    switch (place_) {
      case Place::kStart:
        return Fail(absl::StrCat("the header is ", what, ", not an object"));
      case Place::kTop:
        return Fail(absl::StrCat("the entry ", Printable(key_), " is ", what, ", not an object"));
      case Place::kMetadata:
        return Fail(absl::StrCat("the metadata key ", Printable(key_), " has ", what,
                                 " for its value, not a string"));
      case Place::kEntry:
        return Fail(absl::StrCat(Subject(), " has ", what, " for its ", field_));
      default:
        return Fail(absl::StrCat(Subject(), " has ", what, " in its ", field_));
    }
  }

  const std::string file_;
  absl::Status status_;
  Header header_;
  Place place_ = Place::kStart;
  std::unordered_set<std::string> names_;
  std::string key_;    // of the top level or the metadata
  std::string field_;  // of the entry
  std::array<bool, 3> fields_ = {};
  SafetensorsEntry entry_;
  std::vector<std::uint64_t> offsets_;
};

absl::Status CheckEntry(const SafetensorsEntry& entry, std::uint64_t data_bytes,
                        const std::string& file) {
  const std::string subject = absl::StrCat(file, ": tensor ", Printable(entry.name));
  if (entry.begin > entry.end) {
    return absl::InvalidArgumentError(
        absl::StrCat(subject, " ends at byte ", entry.end, ", before its begin ", entry.begin));
  }
  if (entry.end > data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(subject, " ends at byte ", entry.end,
                                                   " of the data, which has only ", data_bytes,
                                                   ": the file is truncated or damaged"));
  }
  const auto bytes = BytesOf(entry.dtype, entry.shape);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(subject, " ", bytes.status().message()));
  }
  if (static_cast<std::uint64_t>(*bytes) != entry.end - entry.begin) {
    return absl::InvalidArgumentError(
        absl::StrCat(subject, " has ", entry.end - entry.begin, " bytes where ", entry.dtype, " [",
                     absl::StrJoin(entry.shape, ", "), "] needs ", *bytes));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Printable(std::string_view name) {
  constexpr std::size_t kLongest = 200;
  // dump() with replacement escapes control characters and mends broken UTF-8.
  std::string text = nlohmann::json(std::string(name.substr(0, kLongest)))
                         .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (name.size() > kLongest) text += "...";
  return text;
}

absl::StatusOr<std::int64_t> BytesOf(const std::string& dtype,
                                     absl::Span<const std::int64_t> shape) {
  const auto element = SafetensorsElementBytes(dtype);
  if (!element.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("has the unknown dtype ", Printable(dtype)));
  }
  std::int64_t bytes = *element;
  bool empty = false;
  bool overflow = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) {
      return absl::InvalidArgumentError(absl::StrCat("has the negative extent ", extent));
    }
    if (extent == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      // A product that overflows is refused even beside a zero extent, where other readers may
      // compute it in another order.
      overflow = true;
      break;
    }
  }
  if (overflow) {
    return absl::InvalidArgumentError(absl::StrCat("has the shape [", absl::StrJoin(shape, ", "),
                                                   "], whose size is beyond 2^63 - 1 bytes"));
  }
  return empty ? 0 : bytes;
}

absl::StatusOr<Header> ParseHeader(std::string_view json, std::uint64_t data_bytes,
                                   const std::string& file) {
  if (json.empty() || json.front() != '{') {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": the header does not begin with {: not a safetensors file"));
  }
  // The parser takes a zero byte for the end of its input, whatever follows.
  if (const std::size_t zero = json.find('\0'); zero != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": the header is not valid JSON in UTF-8 at byte ", zero + 1));
  }
  Handler handler(file);
  nlohmann::json::sax_parse(json.begin(), json.end(), &handler);
  WEFT_RETURN_IF_ERROR(handler.status());
  Header header = handler.TakeHeader();
  std::sort(header.entries.begin(), header.entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  std::uint64_t expected = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    WEFT_RETURN_IF_ERROR(CheckEntry(entry, data_bytes, file));
    if (entry.begin != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          file, ": tensor ", Printable(entry.name), " begins at byte ", entry.begin,
          entry.begin < expected ? " inside the tensor before it, which ends at byte "
                                 : ", with a gap after the tensor before it, which ends at byte ",
          expected));
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": the last tensor ends at byte ",
                                                   expected, " of ", data_bytes, " bytes of data"));
  }
  return header;
}

}  // namespace safetensors

absl::StatusOr<std::int64_t> SafetensorsElementBytes(std::string_view dtype) {
  for (const auto& element : safetensors::kElements) {
    if (element.name == dtype) return element.bytes;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown dtype ", safetensors::Printable(dtype)));
}

}  // namespace weft
