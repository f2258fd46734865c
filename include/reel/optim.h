#pragma once
#include "reel/optim/average.h"
#include "reel/optim/clip.h"
#include "reel/optim/first_order.h"
#include "reel/optim/lbfgs.h"
#include "reel/optim/lr_scheduler.h"
#include "reel/optim/optimizer.h"

/// Optimizers change parameters in place from the gradients that backward() has left in grad():
///
///   optim::SGD sgd(net.parameters(), {.lr = 0.1, .momentum = 0.9});
///   optim::StepLR schedule(sgd, {.step_size = 10});
///   …
///   sgd.zero_grad();
///   loss.backward();
///   sgd.step();
///   …
///   schedule.step();  // after every epoch
