#include "base/c_result.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace weft::base {

weftResult_t ResultOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return weftSuccess;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return weftInvalidArgument;
    case absl::StatusCode::kFailedPrecondition:
      return weftInvalidUsage;
    case absl::StatusCode::kUnavailable:
      return weftRemoteError;
    case absl::StatusCode::kDeadlineExceeded:
      return weftTimeout;
    case absl::StatusCode::kNotFound:
      return weftNotFound;
    case absl::StatusCode::kAlreadyExists:
      return weftAlreadyExists;
    case absl::StatusCode::kResourceExhausted:
      return weftOutOfMemory;
    case absl::StatusCode::kDataLoss:
      return weftDataLoss;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
      return weftAborted;
    case absl::StatusCode::kUnimplemented:
      return weftUnsupported;
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return weftSystemError;
    default:
      return weftInternalError;
  }
}

absl::Status StatusOf(weftResult_t result, std::string_view what) {
  if (result == weftSuccess) return absl::OkStatus();
  std::string text = absl::StrCat(std::string(what), " returned ", static_cast<int>(result), " (",
                                  Words(result), ")");
  switch (result) {
    case weftInvalidArgument:
      return absl::InvalidArgumentError(text);
    case weftInvalidUsage:
      return absl::FailedPreconditionError(text);
    case weftRemoteError:
      return absl::UnavailableError(text);
    case weftTimeout:
      return absl::DeadlineExceededError(text);
    case weftNotFound:
      return absl::NotFoundError(text);
    case weftAlreadyExists:
      return absl::AlreadyExistsError(text);
    case weftOutOfMemory:
      return absl::ResourceExhaustedError(text);
    case weftDataLoss:
      return absl::DataLossError(text);
    case weftAborted:
      return absl::AbortedError(text);
    case weftUnsupported:
      return absl::UnimplementedError(text);
    case weftSystemError:
      return absl::UnknownError(text);
    default:
      return absl::InternalError(text);
  }
}

const char* Words(weftResult_t result) {
  switch (result) {
    case weftSuccess:
      return "success";
    case weftUnhandledCudaError:
      return "CUDA error";
    case weftSystemError:
      return "system error";
    case weftInternalError:
      return "internal error";
    case weftInvalidArgument:
      return "invalid argument";
    case weftInvalidUsage:
      return "not possible in this state or order";
    case weftRemoteError:
      return "a peer is gone or unreachable";
    case weftInProgress:
      return "in progress";
    case weftTimeout:
      return "a deadline has passed";
    case weftNotFound:
      return "not found";
    case weftAlreadyExists:
      return "exists already";
    case weftOutOfMemory:
      return "out of memory";
    case weftDataLoss:
      return "data is damaged or lost";
    case weftAborted:
      return "aborted";
    case weftUnsupported:
      return "not supported";
    case weftResultOfAnyInt:
      break;
  }
  return "no result of Weft's";
}

}  // namespace weft::base
