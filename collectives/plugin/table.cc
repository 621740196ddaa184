#include "collectives/plugin/table.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/c_result.h"
#include "base/shared_library.h"
#include "base/status_macros.h"

namespace weft::collectives::plugin {

absl::StatusOr<const weftTransportPlugin_v1_t*> FindTable() {
  const base::LibraryRule rule{"the transport plug-in", "WEFT_TRANSPORT_PLUGIN",
                               "libweft-transport"};
  WEFT_ASSIGN_OR_RETURN(void* const symbol, base::FindSymbol(rule, WEFT_TRANSPORT_PLUGIN_V1));
  const auto* const table = static_cast<const weftTransportPlugin_v1_t*>(symbol);
  // Longer ones are of a newer header, which adds at the end.
  if (table->magic != WEFT_CONFIG_MAGIC || table->version != 1 || table->size < sizeof(*table)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the transport plug-in's table has magic ", table->magic, ", version ", table->version,
        " and ", table->size, " bytes; this Weft knows version 1 of ", sizeof(*table), " bytes"));
  }
  if (table->name == nullptr || table->create == nullptr || table->destroy == nullptr ||
      table->abort == nullptr || table->getAsyncError == nullptr || table->commCreate == nullptr ||
      table->commDestroy == nullptr || table->commAbort == nullptr || table->run == nullptr) {
    return absl::FailedPreconditionError("the transport plug-in's table has an empty place");
  }
  return table;
}

weftPluginError_t NoError() {
  weftPluginError_t error{};
  error.size = sizeof(error);
  error.rank = -1;
  return error;
}

Failure FailureOf(weftResult_t result, const weftPluginError_t& error, int rank) {
  const auto* const end = std::find(std::begin(error.sentence), std::end(error.sentence), '\0');
  std::string what(std::begin(error.sentence), end);
  const absl::Status status = base::StatusOf(result, "the transport plug-in");
  if (what.empty()) what = std::string(status.message());
  return {status.code(), error.rank >= 0 ? error.rank : rank, what};
}

}  // namespace weft::collectives::plugin
