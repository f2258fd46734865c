#include "test/support/catch.h"

int main(int argc, char** argv) { return reel::run_tests(argc, argv); }
