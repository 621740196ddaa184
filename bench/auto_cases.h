// What weft_auto_bench runs: ten models on ten machines, written down before any of them was
// measured.
#pragma once

#include <array>
#include <random>
#include <vector>

#include "weft/plan_kinds.h"
#include "weft/topology.h"

namespace weft::bench {

// Equal matrices. A side stands for AutoCase::side_ratio times as much.
struct AutoShape {
  int count, rows, cols;
};

struct AutoCase {
  const char* name;
  const char* preset;
  int nodes = 1, ranks_per_node = 1;
  Layout layout = Layout::kReplicated;
  GradientKind gradient = GradientKind::kLocal;
  std::vector<AutoShape> shapes = {};
  // That Newton-Schulz reaches, products with a symmetric result at half their FLOPs.
  double teraflops = 0;
  double slowdown = 1;
  double side_ratio = 40;  // a side of 64 stands for 2560
  // The trainer's forward pass over one matrix's layer, really; backward takes twice that. 0: the
  // optimizer alone.
  double forward_ms = 0;
  // Of each node's one NIC, where it is not the preset's: 10 Gb/s Ethernet.
  bool ethernet = false;
};

// 10 Gb/s over TCP, as preset consumer-2 has it.
inline constexpr Link kTenGigabit = {30, 1.1};

inline std::vector<AutoCase> AutoCases() {
  constexpr Layout kReplicated = Layout::kReplicated, kSharded = Layout::kSharded;
  constexpr GradientKind kLocal = GradientKind::kLocal, kReduced = GradientKind::kReduced;
  return {
      {"A few large, PCIe node",
       "pcie-48gb-1nic",
       1,
       4,
       kReplicated,
       kLocal,
       {{24, 64, 64}},
       170,
       6},
      {"B compute-bound, NVLink node",
       "h100-nvlink",
       1,
       4,
       kReplicated,
       kLocal,
       {{8, 64, 256}},
       400,
       20},
      {"C training, PCIe",
       "pcie-48gb-1nic",
       2,
       2,
       kReplicated,
       kLocal,
       {{24, 64, 64}},
       170,
       6,
       40,
       1.5},
      {"D 10G Ethernet, DDP", "consumer-2", 2, 2, kReplicated, kReduced, {{16, 64, 64}}, 80, 2},
      {"E H100, DDP", "h100-nvlink", 2, 4, kReplicated, kReduced, {{24, 64, 64}}, 700, 30},
      {"F training, PCIe, FSDP2",
       "pcie-48gb-2nic",
       2,
       4,
       kSharded,
       kReduced,
       {{24, 64, 64}},
       170,
       6,
       40,
       1.0},
      {"G NVLink nodes behind 10G, large and small",
       "a800-nvlink",
       2,
       4,
       kReplicated,
       kLocal,
       {{8, 64, 64}, {16, 32, 32}},
       250,
       4,
       40,
       0,
       true},
      {"H many small, H100, FSDP2",
       "h100-nvlink",
       4,
       2,
       kSharded,
       kReduced,
       {{48, 32, 64}},
       1,
       150,
       4},
      {"I 10G Ethernet, shards of local gradients",
       "consumer-2",
       4,
       2,
       kSharded,
       kLocal,
       {{12, 64, 64}},
       80,
       2},
      {"J slow device, PCIe switches, training",
       "l20-pcie",
       4,
       2,
       kReplicated,
       kReduced,
       {{16, 64, 64}},
       60,
       4,
       40,
       2},
  };
}

// Others, that nobody has chosen: any machine, layout and model, within what two cores can emulate.
// They are called by what they are.
inline std::vector<AutoCase> DrawAutoCases(int count, unsigned seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](const auto& choices) { return choices[random() % choices.size()]; };
  struct Machine {
    const char* preset;
    double teraflops, slowdown;
  };
  constexpr std::array<Machine, 6> kMachines = {{{"h100-nvlink", 700, 30},
                                                 {"a800-nvlink", 250, 12},
                                                 {"pcie-48gb-1nic", 170, 6},
                                                 {"pcie-48gb-2nic", 170, 6},
                                                 {"l20-pcie", 110, 6},
                                                 {"consumer-2", 80, 2}}};
  constexpr std::array<std::array<int, 2>, 5> kGrids = {{{1, 4}, {2, 2}, {2, 4}, {4, 2}, {4, 1}}};
  std::vector<AutoCase> cases;
  for (int i = 0; i < count; ++i) {
    const Machine machine = one_of(kMachines);
    const std::array<int, 2> grid = one_of(kGrids);
    AutoCase drawn = {machine.preset, machine.preset, grid[0], grid[1]};
    drawn.layout = one_of(std::array{Layout::kReplicated, Layout::kSharded});
    drawn.gradient = one_of(std::array{GradientKind::kLocal, GradientKind::kReduced});
    // Faster devices than the machine's make communication count for more, slower ones for less.
    drawn.teraflops = machine.teraflops * one_of(std::array{0.5, 1.0, 2.0, 4.0});
    drawn.slowdown = machine.slowdown * (drawn.teraflops > machine.teraflops ? 2 : 1);
    drawn.shapes = {{one_of(std::array{4, 8, 16, 24}), 64, one_of(std::array{64, 64, 256})}};
    if (random() % 2 == 0) drawn.shapes.push_back({one_of(std::array{8, 16}), 32, 32});
    drawn.forward_ms = one_of(std::array{0.0, 0.0, 0.25, 1.0});
    cases.push_back(drawn);
  }
  return cases;
}

}  // namespace weft::bench
