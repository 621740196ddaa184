// Annotations over NVTX.
#include <nvtx3/nvToolsExtPayload.h>
#include <unistd.h>

#include <cstddef>
#include <iterator>
#include <type_traits>

#include "base/annotate.h"

namespace weft::base {
namespace {

using Payload = OpAnnotation::Payload;

constexpr std::uint64_t kOpSchema = NVTX_PAYLOAD_SCHEMA_ID_STATIC_START;

struct CategoryName {
  Category category;
  const char* name;
};
constexpr CategoryName kCategoryNames[] = {
    {Category::kPlan, "plan"},       {Category::kReduce, "reduce"},
    {Category::kNewtonSchulz, "ns"}, {Category::kUpdate, "update"},
    {Category::kPublish, "publish"}, {Category::kGather, "gather"},
    {Category::kWait, "wait"},       {Category::kWatchdog, "watchdog"},
    {Category::kJob, "job"},
};

static_assert(std::is_standard_layout_v<Payload> && sizeof(Label) == sizeof(nvtxStringHandle_t));

nvtxPayloadSchemaEntry_t Entry(std::uint64_t type, const char* name, const char* description,
                               std::size_t offset) {
  nvtxPayloadSchemaEntry_t entry = {};
  entry.type = type;
  entry.name = name;
  entry.description = description;
  entry.offset = offset;
  return entry;
}

void RegisterSchema(nvtxDomainHandle_t domain) {
  constexpr std::uint64_t kNumber = NVTX_PAYLOAD_ENTRY_TYPE_INT64;
  constexpr std::uint64_t kSmall = NVTX_PAYLOAD_ENTRY_TYPE_INT32;
  constexpr std::uint64_t kString = NVTX_PAYLOAD_ENTRY_TYPE_NVTX_REGISTERED_STRING_HANDLE;
  const nvtxPayloadSchemaEntry_t entries[] = {
      Entry(kNumber, "step", "step of the job", offsetof(Payload, step)),
      Entry(kString, "matrix", "matrix, or the first of several", offsetof(Payload, matrix)),
      Entry(kNumber, "bytes", "payload of a collective on this rank", offsetof(Payload, bytes)),
      Entry(kSmall, "root", "world rank of a rooted collective's root", offsetof(Payload, root)),
      Entry(kSmall, "op", "op of the plan", offsetof(Payload, op)),
      Entry(kString, "communicator", "of a collective", offsetof(Payload, communicator)),
      Entry(kString, "stage", "stage of the job that it works towards", offsetof(Payload, stage)),
  };
  nvtxPayloadSchemaAttr_t schema = {};
  schema.fieldMask =
      NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
      NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
      NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID;
  schema.name = "weft op";
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = entries;
  schema.numEntries = std::size(entries);
  schema.payloadStaticSize = sizeof(Payload);
  schema.schemaId = kOpSchema;
  nvtxPayloadSchemaRegister(domain, &schema);
}

// NVTX's own first call is not safe beside others in the eyes of a race detector: it is made here,
// once, and everything else comes after it.
nvtxDomainHandle_t Attach() {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("weft");
  if (domain == nullptr) return nullptr;
  for (const CategoryName& category : kCategoryNames) {
    nvtxDomainNameCategoryA(domain, static_cast<std::uint32_t>(category.category), category.name);
  }
  RegisterSchema(domain);
  return domain;
}

// Null without a tool.
nvtxDomainHandle_t Domain() {
  static const nvtxDomainHandle_t domain = Attach();
  return domain;
}

nvtxEventAttributes_t Attributes(Category category, Label message) {
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.category = static_cast<std::uint32_t>(category);
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = static_cast<nvtxStringHandle_t>(message.handle);
  return attributes;
}

nvtxEventAttributes_t Attributes(Category category, Label message, std::int64_t number) {
  nvtxEventAttributes_t attributes = Attributes(category, message);
  attributes.payloadType = NVTX_PAYLOAD_TYPE_INT64;
  attributes.payload.llValue = number;
  return attributes;
}

}  // namespace

bool ToolAttached() { return Domain() != nullptr; }

Label Message::Registered() const {
  // Two threads may both register it, which is allowed.
  void* handle = handle_.load(std::memory_order_acquire);
  if (handle == nullptr) {
    handle = annotate::Register(text_).handle;
    handle_.store(handle, std::memory_order_release);
  }
  return {handle};
}

namespace annotate {

Label Register(const std::string& text) {
  return {nvtxDomainRegisterStringA(Domain(), text.c_str())};
}

void Push(Category category, Label message, std::int64_t number) {
  const nvtxEventAttributes_t attributes = Attributes(category, message, number);
  nvtxDomainRangePushEx(Domain(), &attributes);
}

void Push(const OpAnnotation& op, std::int64_t step) {
  Payload payload = op.payload;
  payload.step = step;
  const nvtxPayloadData_t data = {kOpSchema, sizeof(payload), &payload};
  nvtxEventAttributes_t attributes = Attributes(op.category, op.message);
  attributes.payloadType = NVTX_PAYLOAD_TYPE_EXT;
  attributes.reserved0 = 1;  // payloads
  attributes.payload.ullValue = NVTX_POINTER_AS_PAYLOAD_ULLVALUE(&data);
  nvtxDomainRangePushEx(Domain(), &attributes);
}

void Pop() { nvtxDomainRangePop(Domain()); }

std::uint64_t Start(Category category, Label message, std::int64_t number) {
  const nvtxEventAttributes_t attributes = Attributes(category, message, number);
  return nvtxDomainRangeStartEx(Domain(), &attributes);
}

void End(std::uint64_t id) { nvtxDomainRangeEnd(Domain(), id); }

void NameThread(const std::string& name) {
  nvtxNameOsThreadA(static_cast<std::uint32_t>(gettid()), name.c_str());
}

}  // namespace annotate
}  // namespace weft::base
