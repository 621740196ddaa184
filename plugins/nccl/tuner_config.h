// The operator's wishes for the tuner: WEFT_NCCL_TUNER. It must be the same on every rank.
//
//   value     = "@" path of a file that holds a text | text
//   text      = statement { (";" | newline) statement }      from "#" to the end of the line:
//   comment statement = "off"       no opinion ever; stands alone
//             | "default"   the derived policy (tuner_policy.h) where no rule holds
//             | rule
//   rule      = word { space word }, in any order, each key once, at least one action:
//     "reduce" | "broadcast"    for these functions only; none named: both
//     "ranks=" range            communicators of so many ranks
//     "nodes=" range            ... on so many nodes
//     "bytes=" range            operations of so many bytes, with K, M or G for powers of 1024
//     "nvlink"                  also on nodes with NVLink, where otherwise no rule holds
//     "proto=" ll | ll128 | simple      action: take this protocol, if NCCL offers it
//     "channels=" 1..64                 action: this many channels
//   range     = N | N "-" | N "-" M     inclusive
//
// The first rule that holds is taken. The empty value means "default".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft::nccl_plugin {

struct Range {
  std::size_t low = 0;
  std::size_t high = static_cast<std::size_t>(-1);
  bool Holds(std::size_t value) const { return low <= value && value <= high; }
};

struct Rule {
  bool reduce = true;
  bool broadcast = true;
  bool nvlink = false;
  Range ranks, nodes, bytes;
  int protocol = -1;  // -1: not chosen
  int channels = 0;   // 0: not chosen
};

struct TunerConfig {
  bool derived = false;
  std::vector<Rule> rules;
};

// On false, `error` is one sentence and `config` has no opinion ever.
bool ParseTunerConfig(std::string_view text, TunerConfig* config, std::string* error);

// The same for a value of the variable, reading the file that it may name.
bool ReadTunerConfig(const std::string& value, TunerConfig* config, std::string* error);

}  // namespace weft::nccl_plugin
