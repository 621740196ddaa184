#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "runtime/checkpoint/source.h"

namespace weft::runtime {
namespace {

class ExportedSource final : public StateSource {
 public:
  ExportedSource(const ExportedState& state, Description description)
      : identity_(state.description), description_(std::move(description)) {
    for (const StateTensor& tensor : state.tensors) by_name_.emplace(tensor.name, &tensor);
  }

  const std::string& subject() const override { return subject_; }
  const std::string& identity() const override { return identity_; }
  const Description& description() const override { return description_; }

  absl::Status Read(const Tensor& tensor, RowRange rows, Take take) override {
    const auto [first, last] = by_name_.equal_range(tensor.name);
    // Pieces may overlap: each row is taken from the first that has it.
    for (std::int64_t next = rows.first; next < rows.end();) {
      const auto has_next = [&](const auto& item) {
        const StateTensor& piece = *item.second;
        return piece.first_row <= next && next - piece.first_row < piece.rows;
      };
      const auto found = std::find_if(first, last, has_next);
      if (found == last) {
        return absl::InvalidArgumentError(absl::StrCat(
            subject_, " has no row ", next, " of the tensor '", tensor.name, "' on this rank"));
      }
      const StateTensor& piece = *found->second;
      WEFT_RETURN_IF_ERROR(Check(tensor, piece));
      const std::int64_t end = std::min(rows.end(), piece.first_row + piece.rows);
      const std::int64_t begin = (next - piece.first_row) * tensor.row_bytes;
      WEFT_RETURN_IF_ERROR(
          take(next * tensor.row_bytes,
               absl::MakeConstSpan(piece.data).subspan(begin, (end - next) * tensor.row_bytes)));
      next = end;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Check(const Tensor& tensor, const StateTensor& piece) const {
    const auto bad = [&](const std::string& what) {
      return absl::InvalidArgumentError(
          absl::StrCat(subject_, ": the tensor '", tensor.name, "' ", what));
    };
    if (piece.dtype != tensor.dtype || piece.shape != tensor.shape) {
      return bad(absl::StrCat("is ", piece.dtype, " [", absl::StrJoin(piece.shape, ", "), "], not ",
                              tensor.dtype, " [", absl::StrJoin(tensor.shape, ", "), "]"));
    }
    if (piece.first_row < 0 || piece.rows > tensor.rows() - piece.first_row) {
      return bad(absl::StrCat("has a range of rows from ", piece.first_row, " that leaves it"));
    }
    const auto bytes = static_cast<std::size_t>(piece.rows * tensor.row_bytes);
    if (piece.data.size() != bytes) {
      return bad(absl::StrCat("has ", piece.data.size(), " bytes for ", piece.rows, " rows of ",
                              tensor.row_bytes));
    }
    return absl::OkStatus();
  }

  const std::string subject_ = "the imported state";
  const std::string identity_;
  const Description description_;
  std::multimap<std::string, const StateTensor*> by_name_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StateSource>> OpenExported(const ExportedState& state) {
  nlohmann::ordered_json json;
  try {
    json = nlohmann::ordered_json::parse(state.description);
  } catch (const nlohmann::ordered_json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the imported state has no description: ", error.what()));
  }
  WEFT_ASSIGN_OR_RETURN(Description description, ParseDescription(json, "the imported state"));
  return std::make_unique<ExportedSource>(state, std::move(description));
}

}  // namespace weft::runtime
