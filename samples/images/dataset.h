#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reel/reel.h"

/// Images uint8 [channels, side, side] and their classes, from whatever source.
using Images = reel::data::ConcatDataset<std::pair<reel::Tensor, int64_t>>;

struct ImageSets {
  std::string name;
  Images train, test;
  int64_t num_classes;
  bool in_order_of_classes = false;  // so that some at the end are no sample of all
};

/// What `folder` holds: the files of MNIST, of CIFAR-10 or CIFAR-100 in their binary version, or folders train/CLASS
/// and test/CLASS (or val/CLASS) of .png and .jpg, whose images are resized and cut to side x side. Without a folder:
/// drawn shapes of ten classes, 32 x 32, of which so many are for training.
ImageSets load_images(const std::string& folder, int64_t side, int64_t drawn);

/// Mean and deviation of the channels, of images spread over the set, for data::transforms::Normalize.
std::pair<std::vector<double>, std::vector<double>> channel_statistics(const Images& images);
