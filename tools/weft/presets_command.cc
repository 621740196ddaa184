// `weft presets`: the topologies that --preset knows.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "tools/weft/commands.h"
#include "tools/weft/table.h"
#include "tools/weft/topology_text.h"
#include "weft/topology_file.h"
#include "weft/topology_preset.h"

namespace weft::tool {

int PresetsCommand(const Options& options) {
  if (options.preset.empty()) {
    Table table({"preset", "ranks", "<intra", "<inter", "<root complexes", "<node"});
    for (const TopologyPreset& preset : TopologyPresets()) {
      table.Add({std::string(preset.name), absl::StrCat(preset.node.grid.ranks_per_node),
                 IntraText(preset.node), InterText(preset.node), RootComplexText(preset.node),
                 std::string(preset.description)});
    }
    table.Print(std::cout);
  } else {
    const auto topology = Preset(options.preset, options.nodes == 0 ? 1 : options.nodes);
    if (!topology.ok()) return Complain(std::string(topology.status().message()), kBadInput);
    std::cout << TopologyToJson(*topology) << "\n";
  }
  return std::cout.flush() ? 0 : Complain("cannot write to stdout", kFailed);
}

}  // namespace weft::tool
