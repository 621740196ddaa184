#include "plugin/world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static weftResult_t Say(weftPluginError_t* error, weftResult_t result, int rank,
                        const char* sentence) {
  error->rank = rank;
  snprintf(error->sentence, sizeof(error->sentence), "%s", sentence);
  return result;
}

static weftResult_t SayErrno(weftPluginError_t* error, int rank, const char* what,
                             const char* path) {
  char sentence[400];
  snprintf(sentence, sizeof(sentence), "%s '%.200s': errno %d", what, path, errno);
  return Say(error, weftSystemError, rank, sentence);
}

static void Set(End* end, weftResult_t result, int rank, const char* sentence) {
  if (end->result != weftSuccess) return;
  end->result = result;
  end->rank = rank;
  snprintf(end->sentence, sizeof(end->sentence), "%s", sentence);
}

static struct timespec LimitOf(const World* world) {
  struct timespec limit;
  timespec_get(&limit, TIME_UTC);
  const double deadline = world->deadline > 1e8 ? 1e8 : world->deadline;
  limit.tv_sec += (time_t)deadline;
  limit.tv_nsec += (long)((deadline - (double)(time_t)deadline) * 1e9);
  if (limit.tv_nsec >= 1000000000) {
    limit.tv_nsec -= 1000000000;
    ++limit.tv_sec;
  }
  return limit;
}

/* Who comes first makes the mutex; the file's lock keeps the others out meanwhile. */
static void Make(SharedWorld* shared, int size) {
  pthread_mutexattr_t mutex;
  pthread_mutexattr_init(&mutex);
  pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared->mutex, &mutex);
  pthread_condattr_t changed;
  pthread_condattr_init(&changed);
  pthread_condattr_setpshared(&changed, PTHREAD_PROCESS_SHARED);
  pthread_cond_init(&shared->changed, &changed);
  shared->size = size;
  shared->ready = 1;
}

weftResult_t OpenWorld(const weftPluginTransportConfig_t* config, World* world,
                       weftPluginError_t* error) {
  if (config->world_size > kMostRanks) {
    return Say(error, weftUnsupported, config->rank, "has more than 16 ranks in its world");
  }
  char path[4096];
  snprintf(path, sizeof(path), "%s/shm-world", config->store);
  const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return SayErrno(error, config->rank, "cannot open", path);
  flock(fd, LOCK_EX);
  struct stat info;
  void* memory = MAP_FAILED;
  if (fstat(fd, &info) == 0 &&
      (info.st_size == (off_t)sizeof(SharedWorld) || ftruncate(fd, sizeof(SharedWorld)) == 0)) {
    memory = mmap(NULL, sizeof(SharedWorld), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (memory == MAP_FAILED) {
    const weftResult_t result = SayErrno(error, config->rank, "cannot map", path);
    close(fd); /* and its lock */
    return result;
  }
  world->shared = memory;
  world->rank = config->rank;
  world->deadline = config->deadline_seconds;
  if (!world->shared->ready) Make(world->shared, config->world_size);
  flock(fd, LOCK_UN); /* the mapping would keep it */
  close(fd);

  SharedWorld* const shared = world->shared;
  const struct timespec limit = LimitOf(world);
  weftResult_t result = weftSuccess;
  pthread_mutex_lock(&shared->mutex);
  if (shared->size != config->world_size || shared->joined >= shared->size) {
    result = Say(error, weftInvalidUsage, config->rank,
                 "found the file of another run; every run needs an empty store");
  } else {
    ++shared->joined;
    pthread_cond_broadcast(&shared->changed);
    while (result == weftSuccess && shared->joined < shared->size) {
      if (pthread_cond_timedwait(&shared->changed, &shared->mutex, &limit) == ETIMEDOUT) {
        result = Say(error, weftTimeout, config->rank, "waited in vain for ranks to come");
      }
    }
  }
  pthread_mutex_unlock(&shared->mutex);
  if (result != weftSuccess) munmap(memory, sizeof(SharedWorld));
  return result;
}

void CloseWorld(World* world) {
  EndRank(world, weftRemoteError, "has left");
  munmap(world->shared, sizeof(SharedWorld));
}

void EndRank(World* world, weftResult_t result, const char* cause) {
  pthread_mutex_lock(&world->shared->mutex);
  Set(&world->shared->ends[world->rank], result, world->rank, cause);
  pthread_cond_broadcast(&world->shared->changed);
  pthread_mutex_unlock(&world->shared->mutex);
}

void EndGroup(Group* group, weftResult_t result, const char* cause) {
  SharedWorld* const shared = group->world->shared;
  pthread_mutex_lock(&shared->mutex);
  Set(&group->shared->end, result, group->world->rank, cause);
  pthread_cond_broadcast(&shared->changed);
  pthread_mutex_unlock(&shared->mutex);
}

/* An abort counts before a rank that left; under the lock. */
static const End* EndAmong(const SharedWorld* shared, const int32_t* ranks, int32_t count) {
  const End* left = NULL;
  for (int32_t i = 0; i < count; ++i) {
    const End* const end = &shared->ends[ranks == NULL ? i : ranks[i]];
    if (end->result == weftSuccess) continue;
    if (end->result != weftRemoteError) return end;
    left = end;
  }
  return left;
}

static weftResult_t Tell(weftPluginError_t* error, const End* end) {
  return Say(error, (weftResult_t)end->result, end->rank, end->sentence);
}

weftResult_t FirstEnd(World* world, weftPluginError_t* error) {
  SharedWorld* const shared = world->shared;
  pthread_mutex_lock(&shared->mutex);
  const End* const end = EndAmong(shared, NULL, shared->size);
  const weftResult_t result =
      end == NULL || end->result == weftRemoteError ? weftSuccess : Tell(error, end);
  pthread_mutex_unlock(&shared->mutex);
  return result;
}

weftResult_t OpenGroup(World* world, const char* name, const int32_t* ranks, int32_t count,
                       Group* group, weftPluginError_t* error) {
  SharedWorld* const shared = world->shared;
  if (strlen(name) >= kName) {
    return Say(error, weftUnsupported, world->rank, "has a communicator with too long a name");
  }
  group->world = world;
  group->shared = NULL;
  pthread_mutex_lock(&shared->mutex);
  for (int i = 0; i < kMostGroups && group->shared == NULL; ++i) {
    SharedGroup* const place = &shared->groups[i];
    if (place->name[0] == '\0') {
      strcpy(place->name, name);
      place->size = count;
      memcpy(place->ranks, ranks, sizeof(*ranks) * (size_t)count);
    }
    if (strcmp(place->name, name) == 0) group->shared = place;
  }
  weftResult_t result = weftSuccess;
  if (group->shared == NULL) {
    result = Say(error, weftUnsupported, world->rank, "has more than 64 communicators");
  } else if (group->shared->size != count ||
             memcmp(group->shared->ranks, ranks, sizeof(*ranks) * (size_t)count) != 0) {
    result = Say(error, weftInvalidArgument, world->rank, "means another group by that name");
  }
  pthread_mutex_unlock(&shared->mutex);
  if (result != weftSuccess) return result;
  group->rank = 0;
  while (ranks[group->rank] != world->rank) ++group->rank;
  return Meet(group, "its communicator's creation", error);
}

/* The deadline has passed: the lowest member that has not come is named, to all. */
static void EndLate(Group* group, const char* what) {
  int missing = 0;
  while ((group->shared->who >> missing & 1) != 0) ++missing;
  char sentence[400];
  snprintf(sentence, sizeof(sentence), "waited %gs for rank %d in %.250s", group->world->deadline,
           group->shared->ranks[missing], what);
  Set(&group->shared->end, weftTimeout, group->world->rank, sentence);
}

weftResult_t Meet(Group* group, const char* what, weftPluginError_t* error) {
  SharedWorld* const shared = group->world->shared;
  SharedGroup* const meeting = group->shared;
  const struct timespec limit = LimitOf(group->world);
  pthread_mutex_lock(&shared->mutex);
  const int64_t round = meeting->round;
  ++meeting->arrived;
  meeting->who |= 1u << group->rank;
  if (meeting->arrived == meeting->size) {
    meeting->arrived = 0;
    meeting->who = 0;
    ++meeting->round;
    pthread_cond_broadcast(&shared->changed);
  }
  while (meeting->round == round && meeting->end.result == weftSuccess) {
    const End* const end = EndAmong(shared, meeting->ranks, meeting->size);
    if (end != NULL) {
      Set(&meeting->end, (weftResult_t)end->result, end->rank, end->sentence);
    } else if (pthread_cond_timedwait(&shared->changed, &shared->mutex, &limit) == ETIMEDOUT &&
               meeting->round == round && meeting->end.result == weftSuccess) {
      EndLate(group, what);
    }
    if (meeting->end.result != weftSuccess) pthread_cond_broadcast(&shared->changed);
  }
  /* A round that all have reached is over, whatever came after it. */
  const weftResult_t result = meeting->round != round ? weftSuccess : Tell(error, &meeting->end);
  pthread_mutex_unlock(&shared->mutex);
  return result;
}
