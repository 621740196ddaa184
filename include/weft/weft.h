// Everything a trainer needs.
#pragma once

#include "weft/clock.h"
#include "weft/communicator.h"
#include "weft/completion_queue.h"
#include "weft/device.h"
#include "weft/dtype.h"
#include "weft/grid.h"
#include "weft/job.h"
#include "weft/launch.h"
#include "weft/metrics.h"
#include "weft/plan.h"
#include "weft/runtime.h"
#include "weft/safetensors.h"
#include "weft/topology.h"
#include "weft/topology_file.h"
#include "weft/transport.h"
#include "weft/update.h"
