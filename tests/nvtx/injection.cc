// The library that NVTX_INJECTION64_PATH names in the tests: a tool that writes down what it is
// told, and as faults what is no good manners: the default domain, strings that are not
// registered, ids that nobody gave, payloads of an unknown layout.
#include <nvtx3/nvToolsExtPayload.h>
#include <pthread.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <list>
#include <set>

#include "tests/nvtx/record.h"

namespace weft::testing {
namespace {

struct Domain {
  std::string name;
  std::map<std::uint32_t, std::string> categories;
  std::map<std::uint64_t, std::vector<nvtxPayloadSchemaEntry_t>> schemas;
};

struct Tool {
  NvtxRecord record;
  std::list<Domain> domains;       // their addresses are the handles
  std::list<std::string> strings;  // the same
  std::list<std::string> names;    // of schemas' entries
  std::set<const void*> known;     // handles of strings
  std::uint64_t ranges = 0;
};

Tool& TheTool() {
  static Tool& tool = *new Tool;  // outlives every thread that may still end a range
  return tool;
}

Domain& Of(nvtxDomainHandle_t handle) { return *reinterpret_cast<Domain*>(handle); }

// The functions below hold the record's mutex.

void Fault(std::string what) { TheTool().record.faults.push_back(std::move(what)); }

std::string Text(const void* handle) {
  if (TheTool().known.contains(handle)) return *static_cast<const std::string*>(handle);
  Fault("a string that was not registered");
  return "";
}

template <typename Value>
Value Read(const std::byte* from) {
  Value value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

void Decode(const Domain& domain, const nvtxPayloadData_t& data, NvtxEvent& event) {
  const auto schema = domain.schemas.find(data.schemaId);
  if (schema == domain.schemas.end()) return Fault("a payload of an unknown schema");
  const auto* bytes = static_cast<const std::byte*>(data.payload);
  for (const nvtxPayloadSchemaEntry_t& entry : schema->second) {
    const std::byte* from = bytes + entry.offset;
    switch (entry.type) {
      case NVTX_PAYLOAD_ENTRY_TYPE_INT64:
        event.numbers[entry.name] = Read<std::int64_t>(from);
        break;
      case NVTX_PAYLOAD_ENTRY_TYPE_INT32:
        event.numbers[entry.name] = Read<std::int32_t>(from);
        break;
      case NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE:
        event.texts[entry.name] = Text(Read<const void*>(from));
        break;
      default:
        Fault("an entry of a type that these tests do not know");
    }
  }
}

void Add(NvtxEvent::What what, nvtxDomainHandle_t handle, std::uint64_t range,
         const nvtxEventAttributes_t* attributes = nullptr) {
  NvtxEvent event{what, gettid(), Of(handle).name, range};
  if (attributes != nullptr) {
    const Domain& domain = Of(handle);
    const auto category = domain.categories.find(attributes->category);
    if (category == domain.categories.end()) {
      Fault("a category without a name");
    } else {
      event.category = category->second;
    }
    if (attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
      event.message = Text(attributes->message.registered);
    } else {
      Fault("a message that is not registered");
    }
    if (attributes->payloadType == NVTX_PAYLOAD_TYPE_INT64) {
      event.numbers[""] = attributes->payload.llValue;
    } else if (attributes->payloadType == static_cast<std::int32_t>(NVTX_PAYLOAD_TYPE_EXT)) {
      const auto* data = std::bit_cast<const nvtxPayloadData_t*>(attributes->payload.ullValue);
      for (int i = 0; i < attributes->reserved0; ++i) Decode(domain, data[i], event);
    } else {
      Fault("a range without a payload");
    }
  }
  TheTool().record.events.push_back(std::move(event));
}

nvtxDomainHandle_t CreateDomain(const char* name) {
  const std::lock_guard<std::mutex> lock(TheTool().record.mutex);
  TheTool().domains.push_back({name, {}, {}});
  return reinterpret_cast<nvtxDomainHandle_t>(&TheTool().domains.back());
}

void NameCategory(nvtxDomainHandle_t domain, std::uint32_t category, const char* name) {
  const std::lock_guard<std::mutex> lock(TheTool().record.mutex);
  Of(domain).categories[category] = name;
}

nvtxStringHandle_t RegisterString(nvtxDomainHandle_t domain, const char* text) {
  const std::lock_guard<std::mutex> lock(TheTool().record.mutex);
  TheTool().record.strings.emplace(Of(domain).name, text);
  TheTool().strings.emplace_back(text);
  TheTool().known.insert(&TheTool().strings.back());
  return reinterpret_cast<nvtxStringHandle_t>(&TheTool().strings.back());
}

std::uint64_t RegisterSchema(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t* schema) {
  const std::lock_guard<std::mutex> lock(TheTool().record.mutex);
  auto& entries = Of(domain).schemas[schema->schemaId];
  if (!entries.empty()) Fault("a schema that is registered twice");
  for (std::size_t i = 0; i < schema->numEntries; ++i) {
    entries.push_back(schema->entries[i]);
    TheTool().names.emplace_back(schema->entries[i].name);
    entries.back().name = TheTool().names.back().c_str();
  }
  TheTool().record.schemas.emplace_back(schema->name);
  return schema->schemaId;
}

int Push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  const std::lock_guard<std::mutex> lock(TheTool().record.mutex);
  Add(NvtxEvent::What::kPush, domain, 0, attributes);
  return 0;
}

int Pop(nvtxDomainHandle_t domain) {
  const std::lock_guard<std::mutex> lock(TheTool().record.mutex);
  Add(NvtxEvent::What::kPop, domain, 0);
  return 0;
}

nvtxRangeId_t Start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* attributes) {
  const std::lock_guard<std::mutex> lock(TheTool().record.mutex);
  const std::uint64_t range = ++TheTool().ranges;
  Add(NvtxEvent::What::kStart, domain, range, attributes);
  return range;
}

void End(nvtxDomainHandle_t domain, nvtxRangeId_t range) {
  const std::lock_guard<std::mutex> lock(TheTool().record.mutex);
  Add(NvtxEvent::What::kEnd, domain, range);
}

void NameThread(std::uint32_t thread, const char* name) {
  const std::lock_guard<std::mutex> lock(TheTool().record.mutex);
  if (thread != static_cast<std::uint32_t>(gettid())) Fault("a name of another thread");
  char kept[64] = {};
  (void)pthread_getname_np(pthread_self(), kept, sizeof(kept));
  TheTool().record.threads.emplace_back(name, kept);
}

template <typename Result, typename... Arguments>
Result InDefaultDomain(Arguments...) {
  const std::lock_guard<std::mutex> lock(TheTool().record.mutex);
  Fault("a call for the default domain");
  return Result();
}

template <typename Function>
NvtxFunctionPointer Pointer(Function* function) {
  return reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace
}  // namespace weft::testing

#define WEFT_EXPORT extern "C" __attribute__((visibility("default")))

WEFT_EXPORT weft::testing::NvtxRecord* WeftTestsNvtxRecord() {
  return &weft::testing::TheTool().record;
}

WEFT_EXPORT int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  using weft::testing::Pointer;
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  const auto table = [&](NvtxCallbackModule module) {
    NvtxFunctionTable functions = nullptr;
    unsigned int size = 0;
    callbacks->GetModuleFunctionTable(module, &functions, &size);
    return functions;
  };
  const NvtxFunctionTable core = table(NVTX_CB_MODULE_CORE);
  *core[NVTX_CBID_CORE_NameOsThreadA] = Pointer(weft::testing::NameThread);
  using Attributes = const nvtxEventAttributes_t*;
  using weft::testing::InDefaultDomain;
  *core[NVTX_CBID_CORE_MarkEx] = Pointer(InDefaultDomain<void, Attributes>);
  *core[NVTX_CBID_CORE_MarkA] = Pointer(InDefaultDomain<void, const char*>);
  *core[NVTX_CBID_CORE_RangeStartEx] = Pointer(InDefaultDomain<nvtxRangeId_t, Attributes>);
  *core[NVTX_CBID_CORE_RangeStartA] = Pointer(InDefaultDomain<nvtxRangeId_t, const char*>);
  *core[NVTX_CBID_CORE_RangePushEx] = Pointer(InDefaultDomain<int, Attributes>);
  *core[NVTX_CBID_CORE_RangePushA] = Pointer(InDefaultDomain<int, const char*>);
  const NvtxFunctionTable core2 = table(NVTX_CB_MODULE_CORE2);
  *core2[NVTX_CBID_CORE2_DomainCreateA] = Pointer(weft::testing::CreateDomain);
  *core2[NVTX_CBID_CORE2_DomainNameCategoryA] = Pointer(weft::testing::NameCategory);
  *core2[NVTX_CBID_CORE2_DomainRegisterStringA] = Pointer(weft::testing::RegisterString);
  *core2[NVTX_CBID_CORE2_DomainRangePushEx] = Pointer(weft::testing::Push);
  *core2[NVTX_CBID_CORE2_DomainRangePop] = Pointer(weft::testing::Pop);
  *core2[NVTX_CBID_CORE2_DomainRangeStartEx] = Pointer(weft::testing::Start);
  *core2[NVTX_CBID_CORE2_DomainRangeEnd] = Pointer(weft::testing::End);
  return 1;
}

WEFT_EXPORT int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  if (module->moduleId != NVTX_EXT_PAYLOAD_MODULEID) return 1;
  module->segments[0].functionSlots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] =
      reinterpret_cast<intptr_t>(&weft::testing::RegisterSchema);
  return 1;
}
