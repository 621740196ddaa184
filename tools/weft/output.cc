#include "tools/weft/output.h"

#include <optional>
#include <utility>
#include <vector>

#include "tools/weft/numbers.h"
#include "tools/weft/status_macros.h"
#include "weft/safetensors.h"

namespace weft::tool {

absl::Status WriteOutput(const Session& session, const RunReport& report) {
  const auto& tensors = session.model.tensors;
  std::vector<std::optional<std::size_t>> updated(tensors.size());
  for (std::size_t i = 0; i < session.routing.matrices.size(); ++i) {
    updated[session.routing.matrices[i].tensor] = i;
  }
  std::vector<std::vector<std::byte>> converted(tensors.size());
  const auto convert = [&](std::size_t i, const void* weight) {
    const FileFloat type = *FileFloatOf(tensors[i].dtype);
    converted[i].resize(static_cast<std::size_t>(tensors[i].elements) *
                        static_cast<std::size_t>(*SafetensorsElementBytes(tensors[i].dtype)));
    ToFile(type, weight, tensors[i].elements, converted[i].data());
  };
  std::vector<SafetensorsTensor> written;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ModelTensor& tensor = tensors[i];
    SafetensorsTensor out{tensor.name, tensor.dtype, tensor.shape, {}};
    if (updated[i]) {
      const std::vector<std::byte>& weight = report.weights[*updated[i]];
      const FileFloat type = *FileFloatOf(tensor.dtype);
      if (type != FileFloat::kF64) {
        out.data = weight;
      } else {
        convert(i, weight.data());
        out.data = converted[i];
      }
    } else if (tensor.file != nullptr) {
      WEFT_ASSIGN_OR_RETURN(converted[i], tensor.file->ReadAll(*tensor.entry));
      out.data = converted[i];
    } else {
      RoutedMatrix random;
      random.tensor = i;
      random.dtype = WorkingType(*FileFloatOf(tensor.dtype));
      std::vector<float> weight(static_cast<std::size_t>(tensor.elements));
      WEFT_RETURN_IF_ERROR(InitialWeights(session, random, 0, tensor.elements, weight.data()));
      convert(i, weight.data());
      out.data = converted[i];
    }
    written.push_back(std::move(out));
  }
  return WriteSafetensors(session.options.out, written, session.model.metadata);
}

}  // namespace weft::tool
