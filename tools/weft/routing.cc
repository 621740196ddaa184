#include "tools/weft/routing.h"

#include <regex.h>

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tools/weft/json_file.h"
#include "tools/weft/numbers.h"
#include "tools/weft/status_macros.h"

namespace weft::tool {
namespace {

// std::regex recurses once per character; a long name from a hostile file would end the stack.
class Pattern {
 public:
  static absl::StatusOr<std::unique_ptr<Pattern>> Compile(const std::string& text) {
    auto pattern = std::unique_ptr<Pattern>(new Pattern(text));
    const int code = ::regcomp(&pattern->regex_, text.c_str(), REG_EXTENDED | REG_NOSUB);
    if (code != 0) {
      char reason[128];
      ::regerror(code, &pattern->regex_, reason, sizeof(reason));
      return absl::InvalidArgumentError(
          absl::StrCat("--adamw ", Quoted(text), " is not a regular expression: ", reason));
    }
    pattern->compiled_ = true;
    return pattern;
  }
  ~Pattern() {
    if (compiled_) ::regfree(&regex_);
  }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  bool Matches(const std::string& name) {
    if (::regexec(&regex_, name.c_str(), 0, nullptr, 0) != 0) return false;
    matched_ = true;
    return true;
  }
  const std::string& text() const { return text_; }
  bool matched() const { return matched_; }

 private:
  explicit Pattern(std::string text) : text_(std::move(text)) {}

  const std::string text_;
  regex_t regex_;
  bool compiled_ = false;
  bool matched_ = false;
};

}  // namespace

absl::StatusOr<Routing> RouteTensors(const Model& model, const Gradients& gradients,
                                     const std::vector<std::string>& adamw_patterns) {
  std::vector<std::unique_ptr<Pattern>> patterns;
  for (const std::string& text : adamw_patterns) {
    WEFT_ASSIGN_OR_RETURN(auto pattern, Pattern::Compile(text));
    patterns.push_back(std::move(pattern));
  }
  Routing routing;
  std::map<std::string, int> reasons;
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    const ModelTensor& tensor = model.tensors[i];
    const auto type = FileFloatOf(tensor.dtype);
    const char* named = nullptr;
    for (const auto& pattern : patterns) {
      if (pattern->Matches(tensor.name)) named = pattern->text().c_str();
    }
    std::string copied;
    if (!type) {
      copied = absl::StrCat("dtype ", tensor.dtype);
    } else if (tensor.elements == 0) {
      copied = "no elements";
    } else if (!gradients.Has(i)) {
      copied = "no gradient";
    }
    if (!copied.empty()) {
      routing.copied.push_back(i);
      ++reasons[absl::StrCat("copied: ", copied)];
      continue;
    }
    RoutedMatrix matrix;
    matrix.tensor = i;
    matrix.dtype = WorkingType(*type);
    if (tensor.shape.size() == 2) {
      matrix.route = named == nullptr ? Route::kMuon : Route::kAdamW;
      matrix.rows = tensor.shape[0];
      matrix.cols = tensor.shape[1];
      ++reasons[named == nullptr ? std::string("Muon: 2-D")
                                 : absl::StrCat("AdamW: --adamw ", named)];
    } else {
      matrix.route = Route::kAdamW;
      matrix.rows = tensor.elements;
      matrix.cols = 1;
      ++reasons[absl::StrCat("AdamW: ", tensor.shape.size(), "-D")];
    }
    routing.matrices.push_back(matrix);
  }
  for (const auto& pattern : patterns) {
    if (!pattern->matched()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--adamw ", Quoted(pattern->text()), " matches no tensor of ", model.path));
    }
  }
  routing.reasons.assign(reasons.begin(), reasons.end());
  return routing;
}

std::vector<MatrixSpec> SpecsOf(const Model& model, const Routing& routing,
                                const Settings& settings) {
  std::vector<MatrixSpec> specs;
  specs.reserve(routing.matrices.size());
  for (const RoutedMatrix& matrix : routing.matrices) {
    MatrixSpec spec;
    spec.name = model.tensors[matrix.tensor].name;
    spec.rows = matrix.rows;
    spec.cols = matrix.cols;
    spec.dtype = matrix.dtype;
    spec.layout = settings.layout;
    spec.gradient = settings.gradient;
    spec.layer = model.tensors[matrix.tensor].layer;
    if (matrix.route == Route::kMuon) {
      spec.rule = settings.muon;
    } else {
      spec.rule = settings.adamw;
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace weft::tool
