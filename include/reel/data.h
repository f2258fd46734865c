#pragma once
// Data sets, loaders and readers. Every reader takes gzip files as well, trusts nothing in its input, and reports what
// is malformed as an Error that begins with the file and the line (or byte).
#include "reel/data/bptt.h"
#include "reel/data/cifar.h"
#include "reel/data/collate.h"
#include "reel/data/conll.h"
#include "reel/data/csv.h"
#include "reel/data/dataset.h"
#include "reel/data/idx.h"
#include "reel/data/loader.h"
#include "reel/data/sampler.h"
#include "reel/data/tags.h"
#include "reel/data/text.h"
#include "reel/data/transforms.h"
#include "reel/data/tree.h"
#include "reel/data/vocabulary.h"
#include "reel/data/word_piece.h"
#include "reel/data/word_vectors.h"
