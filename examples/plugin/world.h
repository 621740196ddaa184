/* What the ranks of the sample plug-in share: one file in the store, which all of them map. */
#ifndef EXAMPLES_PLUGIN_WORLD_H_
#define EXAMPLES_PLUGIN_WORLD_H_

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "weft/c/plugin_v1.h"

enum { kMostRanks = 16, kMostGroups = 64, kName = 128, kChunk = 1 << 16 };

/* Why a group, or all that a rank has to do with, has ended. */
typedef struct {
  int32_t result; /* weftSuccess: it has not */
  int32_t rank;   /* world rank */
  char sentence[400];
} End;

typedef struct {
  char name[kName]; /* empty: the place is free */
  int32_t size, joined;
  int32_t ranks[kMostRanks];
  End end;
  int64_t round;   /* of the barrier */
  int32_t arrived; /* in this round */
  uint32_t who;    /* by group rank */
  char slots[kMostRanks][kChunk];
} SharedGroup;

typedef struct {
  int32_t ready; /* the mutex is made */
  int32_t size, joined;
  pthread_mutex_t mutex; /* over all that is here but the slots */
  pthread_cond_t changed;
  End ends[kMostRanks]; /* by rank: aborted, or left */
  SharedGroup groups[kMostGroups];
} SharedWorld;

typedef struct {
  SharedWorld* shared;
  int rank;
  double deadline;
} World;

/* Maps the world in the folder `store`, and waits for all ranks. */
weftResult_t OpenWorld(const weftPluginTransportConfig_t* config, World* world,
                       weftPluginError_t* error);
void CloseWorld(World* world);

typedef struct {
  World* world;
  SharedGroup* shared;
  int rank; /* in the group */
} Group;

/* Waits for all members. */
weftResult_t OpenGroup(World* world, const char* name, const int32_t* ranks, int32_t count,
                       Group* group, weftPluginError_t* error);
void EndGroup(Group* group, weftResult_t result, const char* cause);
void EndRank(World* world, weftResult_t result, const char* cause);
/* The first end among the ranks. */
weftResult_t FirstEnd(World* world, weftPluginError_t* error);
/* Passes when all members have come; `what` is what they come for. */
weftResult_t Meet(Group* group, const char* what, weftPluginError_t* error);

#endif /* EXAMPLES_PLUGIN_WORLD_H_ */
