#include "tools/weft/json_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/weft/status_macros.h"

namespace weft::tool {
namespace {

using nlohmann::json;

constexpr int kDeepest = 8;
constexpr off_t kLargestText = 100'000'000;

}  // namespace

absl::StatusOr<std::string> ReadText(const std::string& path) {
  // A FIFO without a writer would be waited for.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  struct stat found;
  absl::Status status;
  std::string text;
  if (::fstat(descriptor, &found) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  } else if (!S_ISREG(found.st_mode)) {
    status = absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  } else if (found.st_size > kLargestText) {
    status = absl::InvalidArgumentError(absl::StrCat(path, ": larger than 100 MB"));
  } else {
    text.resize(static_cast<std::size_t>(found.st_size));
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t got = ::read(descriptor, text.data() + done, text.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) status = absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    text.resize(done);
  }
  ::close(descriptor);
  if (!status.ok()) return status;
  return text;
}

absl::StatusOr<json> ParseJson(std::string_view text, const std::string& source) {
  std::string problem;
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (!problem.empty()) return false;
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      if (depth >= kDeepest) {
        problem = absl::StrCat("more than ", kDeepest, " levels of nesting");
        return false;
      }
    }
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key &&
        !keys.back().insert(parsed.get_ref<const std::string&>()).second) {
      problem = absl::StrCat("the key ", Quoted(parsed.get_ref<const std::string&>()),
                             " appears twice in one object");
      return false;
    }
    return true;
  };
  json value = json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  // The parser takes a zero byte for the end of its input, whatever follows.
  const bool cut = text.find('\0') != std::string_view::npos;
  if (problem.empty() && (value.is_discarded() || cut)) problem = "not valid JSON in UTF-8";
  if (!problem.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": ", problem));
  }
  return value;
}

absl::StatusOr<json> ReadJson(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  return ParseJson(text, path);
}

std::string Quoted(std::string_view text) {
  constexpr std::size_t kLongest = 200;
  std::string quoted = json(std::string(text.substr(0, kLongest)))
                           .dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kLongest) quoted += "...";
  return quoted;
}

}  // namespace weft::tool
