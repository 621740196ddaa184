// JSON that comes from users: strict, with one sentence for what is wrong.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weft::tool {

// The whole file, at most 100 MB. Errors name `path`.
absl::StatusOr<std::string> ReadText(const std::string& path);

// InvalidArgument, beginning with `source`, for anything but one JSON value in UTF-8 with at most
// eight levels and no key twice in one object.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const std::string& source);

absl::StatusOr<nlohmann::json> ReadJson(const std::string& path);

// A user's text as a message shows it: quoted, control characters escaped, cut when long.
std::string Quoted(std::string_view text);

}  // namespace weft::tool
