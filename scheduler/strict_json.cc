#include "scheduler/strict_json.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::scheduler {

using Json = nlohmann::json;

absl::StatusOr<Json> ParseStrictObject(std::string_view text, const char* subject) {
  const auto refuse = [&](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(subject, ": ", what, "."));
  };
  // The parser keeps the last of two equal keys, and takes a zero byte for the end of its input.
  std::vector<std::set<std::string>> keys;
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && twice.empty() &&
        !keys.back().insert(parsed.get_ref<const std::string&>()).second) {
      twice = parsed.get_ref<const std::string&>();
    }
    return true;
  };
  Json json = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (json.is_discarded() || text.find('\0') != std::string_view::npos) {
    return refuse("the text is not JSON");
  }
  if (!twice.empty()) return refuse(absl::StrCat("'", twice, "' appears twice in one object"));
  if (!json.is_object()) return refuse("the text must be a JSON object");
  return json;
}

absl::Status Fields::Refuse(const std::string& field, const std::string& what) const {
  return absl::InvalidArgumentError(absl::StrCat(subject_, ": ", Named(field), " ", what, "."));
}

absl::Status Fields::Check(std::initializer_list<const char*> required,
                           std::initializer_list<const char*> optional) const {
  if (!object_.is_object()) {
    // Without the dot that stands before a field.
    return absl::InvalidArgumentError(
        absl::StrCat(subject_, ": '", where_.substr(0, where_.size() - (where_.empty() ? 0 : 1)),
                     "' must be an object."));
  }
  for (const auto& item : object_.items()) {
    const auto is_it = [&](const char* name) { return item.key() == name; };
    if (std::none_of(required.begin(), required.end(), is_it) &&
        std::none_of(optional.begin(), optional.end(), is_it)) {
      return Refuse(item.key(), "is not a known field");
    }
  }
  for (const char* name : required) {
    if (!object_.contains(name)) return Refuse(name, "is missing");
  }
  return absl::OkStatus();
}

absl::Status Fields::ReadInt(const char* field, std::int64_t least, std::int64_t most,
                             std::int64_t* value) const {
  const Json& json = object_.at(field);
  if (!json.is_number_integer()) return Refuse(field, "must be a whole number");
  const bool huge =
      json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(most);
  if (huge || json.get<std::int64_t>() < least || json.get<std::int64_t>() > most) {
    return Refuse(field, absl::StrCat("must lie in ", least, " to ", most, ", not ", json.dump()));
  }
  *value = json.get<std::int64_t>();
  return absl::OkStatus();
}

absl::Status Fields::ReadInt(const char* field, int least, int most, int* value) const {
  std::int64_t wide = 0;
  WEFT_RETURN_IF_ERROR(ReadInt(field, std::int64_t{least}, std::int64_t{most}, &wide));
  *value = static_cast<int>(wide);
  return absl::OkStatus();
}

absl::Status Fields::ReadNumber(const char* field, bool positive, double* value) const {
  const Json& json = object_.at(field);
  if (!json.is_number()) return Refuse(field, "must be a number");
  const double number = json.get<double>();
  if (!std::isfinite(number) || number < 0 || (positive && number == 0)) {
    return Refuse(field,
                  positive ? "must be finite and positive" : "must be finite and not negative");
  }
  *value = number;
  return absl::OkStatus();
}

absl::Status Fields::ReadText(const char* field, std::string* value) const {
  const Json& json = object_.at(field);
  if (!json.is_string()) return Refuse(field, "must be a text");
  *value = json.get<std::string>();
  return absl::OkStatus();
}

absl::Status Fields::CheckArray(const char* field) const {
  if (object_.at(field).is_array()) return absl::OkStatus();
  return Refuse(field, "must be a list");
}

}  // namespace weft::scheduler
