#include "plugins/nccl/profile_file.h"

#include <unistd.h>

#include <cstdio>

#include "plugins/nccl/profile_json.h"

namespace weft::nccl_plugin {

std::string ProfilePath(const std::string& pattern, std::int32_t rank, std::uint64_t communicator) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(communicator));
  std::string whole = pattern;
  const std::size_t folder = whole.rfind('/');
  std::size_t dot = whole.rfind('.');
  if (dot == std::string::npos || (folder != std::string::npos && dot < folder)) dot = whole.size();
  std::string missing;
  if (pattern.find("%c") == std::string::npos) missing += "-%c";
  if (pattern.find("%r") == std::string::npos) missing += "-%r";
  whole.insert(dot, missing);

  std::string path;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (whole[i] == '%' && i + 1 < whole.size() && (whole[i + 1] == 'r' || whole[i + 1] == 'c')) {
      path += whole[++i] == 'r' ? std::to_string(rank) : digits;
    } else {
      path += whole[i];
    }
  }
  return path;
}

void ProfileFile::Write(const std::string& events, const std::string& summary, Logger log) {
  if (failed_) return;
  std::string text;
  const bool first = path_.empty();
  if (first) {
    path_ = ProfilePath(name_.pattern, name_.process, name_.id);
    text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + NamesJson(name_);
  }
  text += events;
  const long end = end_ + static_cast<long>(text.size());
  // The last event is a metadata one that viewers pass over: none before it ends without a comma.
  text += "{\"ph\":\"M\",\"pid\":" + std::to_string(name_.process) +
          ",\"tid\":0,\"name\":\"weft_nccl_end\",\"args\":{}}\n],\"otherData\":" + summary + "}\n";

  std::FILE* const file = std::fopen(path_.c_str(), first ? "wb" : "r+b");
  bool ok = file != nullptr;
  if (ok) {
    ok = std::fseek(file, end_, SEEK_SET) == 0 &&
         std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0 &&
         ::ftruncate(fileno(file), end_ + static_cast<long>(text.size())) == 0;
    ok = std::fclose(file) == 0 && ok;
  }
  end_ = end;
  if (ok) return;
  failed_ = true;
  if (log != nullptr) {
    log(kLogWarn, kLogProfile, __FILE__, __LINE__,
        "Weft's profiler cannot write %s (WEFT_NCCL_PROFILE); the rest of it is lost",
        path_.c_str());
  }
}

}  // namespace weft::nccl_plugin
