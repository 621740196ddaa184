// JSON that people write: strict, with one sentence for what is wrong.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft::scheduler {

// One JSON object and nothing behind it, no key twice in one object. InvalidArgument begins with
// `subject`, "topology".
absl::StatusOr<nlohmann::json> ParseStrictObject(std::string_view text, const char* subject);

// The fields of one object: each Read* leaves `value` alone where it refuses. Messages name a field
// as subject: 'where.field'.
class Fields {
 public:
  // `object` must outlive it.
  Fields(const nlohmann::json& object, std::string subject, std::string where)
      : object_(object), subject_(std::move(subject)), where_(std::move(where)) {}

  absl::Status Refuse(const std::string& field, const std::string& what) const;
  // That it is an object without other fields, and with all that are not optional.
  absl::Status Check(std::initializer_list<const char*> required,
                     std::initializer_list<const char*> optional = {}) const;
  // Of fields that are there.
  absl::Status ReadInt(const char* field, std::int64_t least, std::int64_t most,
                       std::int64_t* value) const;
  absl::Status ReadInt(const char* field, int least, int most, int* value) const;
  // Finite and at least 0; above 0 where `positive`.
  absl::Status ReadNumber(const char* field, bool positive, double* value) const;
  absl::Status ReadText(const char* field, std::string* value) const;
  absl::Status CheckArray(const char* field) const;

 private:
  std::string Named(const std::string& field) const { return "'" + where_ + field + "'"; }

  const nlohmann::json& object_;
  const std::string subject_;
  const std::string where_;  // "" or ends with a dot
};

}  // namespace weft::scheduler
