// A program that loads a plug-in, twice: plugin_host PLUGIN. Each may bring a copy of the library.
#include <dlfcn.h>
#include <reel/reel.h>

#include <cstdio>

int main(int, char** arguments) {
  for (int round = 0; round < 2; ++round) {
    void* const plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!plugin) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    const auto forward =
        reinterpret_cast<void (*)(const reel::Tensor&, reel::Tensor*)>(dlsym(plugin, "plugin_forward"));
    {
      const reel::NoGrad guard;
      reel::Tensor y;
      forward(reel::ones({2, 4}), &y);
      std::printf("%d\n", y.requires_grad());
    }
    dlclose(plugin);
  }
}
