#pragma once
/// Training with several processes, on one machine or many: link with reel::distributed.
#include "reel/distributed/collectives.h"
#include "reel/distributed/ddp.h"
#include "reel/distributed/error.h"
#include "reel/distributed/group.h"
#include "reel/distributed/launch.h"
#include "reel/distributed/sampler.h"
#include "reel/distributed/store.h"
