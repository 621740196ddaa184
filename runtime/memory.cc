#include "runtime/memory.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace weft::runtime {
namespace {

// Rows of `op`'s matrix that its rule's state covers on `rank`.
std::int64_t StateRows(const Plan& plan, const Op& op, int rank) {
  switch (op.kind) {
    case OpKind::kMomentum:
    case OpKind::kElementwise:
      return SlotRows(plan, op.matrix, op.target, rank);
    case OpKind::kCustom:
      return plan.matrices[op.matrix].rows;
    default:
      return 0;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Memory>> Memory::Create(Device& device, const Plan& plan,
                                                       const std::vector<MatrixSpec>& specs,
                                                       int rank) {
  std::unique_ptr<Memory> memory(new Memory);
  memory->slots_.resize(specs.size());
  memory->states_.resize(specs.size());
  std::unique_ptr<Stream> stream = device.CreateStream("weft memory");

  const auto allocate = [&](const std::string& name, std::size_t bytes) -> absl::StatusOr<Buffer*> {
    absl::StatusOr<std::unique_ptr<Buffer>> buffer = device.Allocate(bytes);
    if (!buffer.ok()) {
      return absl::Status(buffer.status().code(),
                          absl::StrCat("matrix '", name, "': ", buffer.status().message()));
    }
    memory->buffers_.push_back(*std::move(buffer));
    device.Clear(*stream, memory->buffers_.back()->data(), bytes);
    return memory->buffers_.back().get();
  };

  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto matrix = static_cast<std::int32_t>(i);
    for (int s = 1; s < kSlotCount; ++s) {
      const Slot slot = static_cast<Slot>(s);
      if (slot == Slot::kWeight) {
        memory->slots_[i][s] = specs[i].weight;
        continue;
      }
      const std::size_t bytes = SlotRows(plan, matrix, slot, rank) * specs[i].cols *
                                SizeOf(SlotType(plan.matrices[i], slot));
      if (bytes == 0) continue;
      WEFT_ASSIGN_OR_RETURN(Buffer * buffer, allocate(specs[i].name, bytes));
      memory->slots_[i][s] = buffer->data();
    }
  }
  for (const auto& lane : plan.lanes[rank]) {
    for (const std::int32_t id : lane) {
      const Op& op = plan.ops[id];
      const std::int64_t rows = op.matrix >= 0 ? StateRows(plan, op, rank) : 0;
      if (rows == 0) continue;
      const PlanMatrix& matrix = plan.matrices[op.matrix];
      const std::size_t bytes = rows * matrix.cols * matrix.state_bytes_per_element;
      if (bytes == 0) continue;
      WEFT_ASSIGN_OR_RETURN(Buffer * buffer, allocate(matrix.name, bytes));
      memory->states_[op.matrix] = absl::MakeSpan(buffer->as<float>(), bytes / sizeof(float));
    }
  }
  const std::size_t counter_bytes = specs.size() * sizeof(std::int64_t);
  WEFT_ASSIGN_OR_RETURN(memory->applied_steps_, device.Allocate(counter_bytes));
  device.Clear(*stream, memory->applied_steps_->data(), counter_bytes);
  WEFT_RETURN_IF_ERROR(stream->Synchronize(absl::InfiniteDuration()));
  return memory;
}

}  // namespace weft::runtime
