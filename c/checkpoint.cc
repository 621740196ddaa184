// Memory of parameters and state; checkpoints, whole and as tensors.
#include <cstring>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "c/config.h"
#include "c/convert.h"
#include "c/objects.h"
#include "weft/c/weft.h"

using weft::c::Call;
using weft::c::CheckPointer;
using weft::c::Kind;

namespace {

// A tensor of the caller's whose struct has `size` bytes.
absl::StatusOr<weft::StateTensor> TensorAt(const unsigned char* at, std::size_t size) {
  weftStateTensor_t given{};
  std::memcpy(&given, at, std::min(size, sizeof(given)));
  weft::StateTensor tensor;
  WEFT_ASSIGN_OR_RETURN(tensor.name, weft::c::TextOf(given.name, "weftStateTensor_t.name"));
  WEFT_ASSIGN_OR_RETURN(tensor.dtype, weft::c::TextOf(given.dtype, "weftStateTensor_t.dtype"));
  WEFT_ASSIGN_OR_RETURN(tensor.shape,
                        weft::c::ListOf(given.shape, given.shape_count, "weftStateTensor_t.shape"));
  tensor.first_row = given.first_row;
  tensor.rows = given.rows;
  if (given.data == nullptr && given.data_bytes > 0) {
    return absl::InvalidArgumentError(absl::StrCat("the data of tensor '", tensor.name,
                                                   "' is a null pointer with ", given.data_bytes,
                                                   " bytes"));
  }
  const auto* const data = static_cast<const std::byte*>(given.data);
  tensor.data.assign(data, data + given.data_bytes);
  return tensor;
}

}  // namespace

weftResult_t weftRuntimeParameter(weftRuntime_t runtime, int32_t matrix, const void** weight) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(weight, "weight"));
    WEFT_ASSIGN_OR_RETURN(*weight, object.runtime->Parameter(matrix));
    return absl::OkStatus();
  });
}

weftResult_t weftRuntimeState(weftRuntime_t runtime, int32_t matrix, float** state,
                              int64_t* count) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(state, "state"));
    WEFT_RETURN_IF_ERROR(CheckPointer(count, "count"));
    WEFT_ASSIGN_OR_RETURN(const absl::Span<float> held, object.runtime->State(matrix));
    *state = held.empty() ? nullptr : held.data();
    *count = static_cast<int64_t>(held.size());
    return absl::OkStatus();
  });
}

weftResult_t weftRuntimeSave(weftRuntime_t runtime, const char* folder,
                             const weftCheckpointConfig_t* config) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const std::string path, weft::c::TextOf(folder, "folder"));
    WEFT_ASSIGN_OR_RETURN(const auto options, weft::c::OptionsOf(config));
    return object.runtime->Save(path, options.save);
  });
}

weftResult_t weftRuntimeLoad(weftRuntime_t runtime, const char* folder,
                             const weftCheckpointConfig_t* config) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const std::string path, weft::c::TextOf(folder, "folder"));
    WEFT_ASSIGN_OR_RETURN(const auto options, weft::c::OptionsOf(config));
    return object.runtime->Load(path, options.load);
  });
}

weftResult_t weftRuntimeExportState(weftRuntime_t runtime, const weftCheckpointConfig_t* config,
                                    weftState_t* state) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(state, "state"));
    WEFT_ASSIGN_OR_RETURN(const auto options, weft::c::OptionsOf(config));
    WEFT_ASSIGN_OR_RETURN(weft::ExportedState exported,
                          object.runtime->ExportState(options.exported));
    *state = new weftState(std::move(exported));
    return absl::OkStatus();
  });
}

weftResult_t weftStateDescription(weftState_t state, const char** description,
                                  size_t* description_bytes) {
  return Call(state, Kind::kState, [&](weftState& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(description, "description"));
    WEFT_RETURN_IF_ERROR(CheckPointer(description_bytes, "description_bytes"));
    *description = object.state.description.c_str();
    *description_bytes = object.state.description.size();
    return absl::OkStatus();
  });
}

weftResult_t weftStateTensorCount(weftState_t state, int64_t* count) {
  return Call(state, Kind::kState, [&](weftState& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(count, "count"));
    *count = static_cast<int64_t>(object.state.tensors.size());
    return absl::OkStatus();
  });
}

weftResult_t weftStateTensor(weftState_t state, int64_t index, weftStateTensor_t* tensor) {
  return Call(state, Kind::kState, [&](weftState& object) -> absl::Status {
    const auto& tensors = object.state.tensors;
    if (index < 0 || index >= static_cast<int64_t>(tensors.size())) {
      return absl::InvalidArgumentError(
          absl::StrCat("index is ", index, ", but there are ", tensors.size(), " tensors"));
    }
    const weft::StateTensor& from = tensors[static_cast<std::size_t>(index)];
    weftStateTensor_t report{};
    report.name = from.name.c_str();
    report.dtype = from.dtype.c_str();
    report.shape = from.shape.data();
    report.shape_count = static_cast<int64_t>(from.shape.size());
    report.first_row = from.first_row;
    report.rows = from.rows;
    report.data = from.data.data();
    report.data_bytes = from.data.size();
    return weft::c::WriteReport(report, tensor, "weftStateTensor_t");
  });
}

weftResult_t weftStateDestroy(weftState_t state) { return weft::c::Destroy(state, Kind::kState); }

weftResult_t weftRuntimeImportState(weftRuntime_t runtime, const char* description,
                                    size_t description_bytes, const weftStateTensor_t* tensors,
                                    int64_t tensor_count, const weftCheckpointConfig_t* config) {
  return Call(runtime, Kind::kRuntime, [&](weftRuntime& object) -> absl::Status {
    WEFT_RETURN_IF_ERROR(CheckPointer(description, "description"));
    if (tensor_count < 0) {
      return absl::InvalidArgumentError(absl::StrCat("tensor_count is ", tensor_count));
    }
    WEFT_ASSIGN_OR_RETURN(const auto options, weft::c::OptionsOf(config));
    weft::ExportedState state;
    state.description.assign(description, description_bytes);
    if (tensor_count > 0) {
      WEFT_RETURN_IF_ERROR(CheckPointer(tensors, "tensors"));
      std::size_t size = 0;
      std::memcpy(&size, tensors, sizeof(size));
      if (size < sizeof(weftStateTensor_t) || size > weft::c::kLargestStruct) {
        return absl::InvalidArgumentError(absl::StrCat("weftStateTensor_t.size is ", size,
                                                       "; set it to sizeof(weftStateTensor_t)"));
      }
      const auto* const bytes = reinterpret_cast<const unsigned char*>(tensors);
      for (int64_t i = 0; i < tensor_count; ++i) {
        WEFT_ASSIGN_OR_RETURN(weft::StateTensor tensor,
                              TensorAt(bytes + static_cast<std::size_t>(i) * size, size));
        state.tensors.push_back(std::move(tensor));
      }
    }
    return object.runtime->ImportState(state, options.load);
  });
}
