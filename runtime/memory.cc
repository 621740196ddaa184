#include "runtime/memory.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "weft/plan_cost.h"

namespace weft::runtime {
std::int64_t StateRows(const Plan& plan, const Op& op, std::int32_t m, int rank) {
  switch (op.kind) {
    case OpKind::kMomentum:
    case OpKind::kElementwise:
      return SlotRows(plan, m, op.target, rank);
    case OpKind::kCustom:
      return plan.matrices[m].rows;
    default:
      return 0;
  }
}

// A bucket's weights lie side by side, as they travel.
absl::Status Memory::KeepWeights(Device& device, const Plan& plan,
                                 const std::vector<MatrixSpec>& specs, int rank) {
  std::vector<std::byte*> next(plan.sets.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const MatrixSpec& spec = specs[i];
    const PlanMatrix& matrix = plan.matrices[i];
    void*& weight = slots_[i][static_cast<int>(Slot::kWeight)];
    if (spec.layout != Layout::kOwned) weight = spec.weight;
    if (spec.layout != Layout::kOwned || matrix.owner != rank) continue;
    const auto bytes_of = [&](std::int32_t m) {
      return static_cast<std::size_t>(specs[m].rows * specs[m].cols) * SizeOf(specs[m].dtype);
    };
    const auto bytes = bytes_of(static_cast<std::int32_t>(i));
    if (bytes > 0 && spec.weight == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("matrix '", spec.name, "': its first weight is null on its owner"));
    }
    std::byte* place = nullptr;
    std::byte*& begin = matrix.bucket >= 0 ? next[matrix.bucket] : place;
    if (begin == nullptr) {
      std::size_t all = bytes;
      if (matrix.bucket >= 0) {
        all = 0;
        for (const std::int32_t m : plan.sets[matrix.bucket]) all += bytes_of(m);
      }
      if (all == 0) continue;
      absl::StatusOr<std::unique_ptr<Buffer>> buffer = device.Allocate(all);
      if (!buffer.ok()) {
        return absl::Status(buffer.status().code(),
                            absl::StrCat("matrix '", spec.name, "': ", buffer.status().message()));
      }
      buffers_.push_back(*std::move(buffer));
      begin = buffers_.back()->as<std::byte>();
    }
    // An empty one too: the bucket travels from where its first lies.
    weight = begin;
    begin += bytes;
    if (bytes > 0) WEFT_RETURN_IF_ERROR(device.CopyNow(weight, spec.weight, bytes));
  }
  return absl::OkStatus();
}

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

  WEFT_RETURN_IF_ERROR(memory->KeepWeights(device, plan, specs, rank));
  const RankBuffers layout = BuffersOfRank(plan, rank);
  std::vector<std::byte*> buffers(plan.buffers);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    for (int s = 1; s < kSlotCount; ++s) {
      const std::int32_t index = plan.matrices[i].buffers[s];
      const bool weight = static_cast<Slot>(s) == Slot::kWeight;
      if (weight && (specs[i].layout != Layout::kOwned || plan.matrices[i].owner == rank)) {
        continue;  // KeepWeights()
      }
      if (index >= 0 && layout.bytes[index] > 0) {
        if (buffers[index] == nullptr) {
          WEFT_ASSIGN_OR_RETURN(Buffer * buffer, allocate(specs[i].name, layout.bytes[index]));
          buffers[index] = buffer->as<std::byte>();
        }
        memory->slots_[i][s] = buffers[index] + layout.offsets[i][s];
      }
    }
  }
  for (int lane = 0; lane < kLaneCount; ++lane) {
    if (layout.scratch[lane] == 0) continue;
    WEFT_ASSIGN_OR_RETURN(Buffer * buffer,
                          allocate("(parts of collectives)", layout.scratch[lane]));
    memory->scratch_[lane] = buffer->data();
  }
  for (const auto& lane : plan.lanes[rank]) {
    for (const std::int32_t id : lane) {
      const Op& op = plan.ops[id];
      for (const std::int32_t m : MatricesOf(plan, op)) {
        const PlanMatrix& matrix = plan.matrices[m];
        const std::size_t bytes =
            StateRows(plan, op, m, rank) * matrix.cols * matrix.state_bytes_per_element;
        if (bytes == 0) continue;
        WEFT_ASSIGN_OR_RETURN(Buffer * buffer, allocate(matrix.name, bytes));
        memory->states_[m] = absl::MakeSpan(buffer->as<float>(), bytes / sizeof(float));
      }
    }
  }
  const std::size_t counter_bytes = specs.size() * sizeof(std::int64_t);
  WEFT_ASSIGN_OR_RETURN(memory->applied_steps_, device.Allocate(counter_bytes));
  device.Clear(*stream, memory->applied_steps_->data(), counter_bytes);
  WEFT_RETURN_IF_ERROR(stream->Synchronize(absl::InfiniteDuration()));
  return memory;
}

}  // namespace weft::runtime
