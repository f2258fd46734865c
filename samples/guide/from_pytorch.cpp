#include "samples/guide/guide.h"

namespace guide_from_pytorch {
using namespace reel;

// [module]
struct Block : nn::Layer<Block> {  // class Block(nn.Module):
  explicit Block(int64_t size) : fc{*this, "fc", size, size}, scale{*this, "scale", ones({size})} {}
  Block(nn::Module& parent, std::string name, int64_t size) : Block(size) {
    parent.register_module(std::move(name), *this);
  }
  Tensor forward(const Tensor& x) const { return x + scale * gelu(fc(x)); }

  nn::Linear fc;        // self.fc = nn.Linear(size, size)
  nn::Parameter scale;  // self.scale = nn.Parameter(torch.ones(size))
};

struct Net : nn::Layer<Net> {
  explicit Net(int depth) {
    for (int i = 0; i < depth; ++i) blocks.push_back(Block(8));
  }
  Tensor forward(Tensor x) const {
    for (const Block& block : blocks) x = block(x);
    return head(x);
  }

  nn::ModuleList<Block> blocks{*this, "blocks"};  // self.blocks = nn.ModuleList(…)
  nn::Linear head{*this, "head", 8, 2};
};
// [/module]

void run() {
  // [handles]
  Tensor a = zeros({3});
  Tensor b = a;  // another handle of the same elements, as in Python
  b += 1;        // in place: changes a, too
  b = b + 1;     // a new tensor: a stays
  // [/handles]
  REEL_CHECK(a.equal(full({3}, 1.0)) && b.equal(full({3}, 2.0)), "handles");

  // [weights]
  Net net(2);
  io::save(net, "net.safetensors");              // safetensors.torch.load_file reads it
  net.load_state_dict(net.state_dict());         // names as PyTorch's: "blocks.0.fc.weight"
  StateDict rest = io::load("net.safetensors");  // a .pt file of torch.save works the same way
  nn::LoadResult result = io::load(net, "net.safetensors", {.strict = false});  // says what was missing
  // [/weights]
  REEL_CHECK(rest.size() == 8 && rest[0].first == "blocks.0.fc.weight", "names ", rest.size(), " ", rest[0].first);
  REEL_CHECK(net(randn({4, 8})).shape() == (Shape{4, 2}) && result.missing.empty(), "net");
}

}  // namespace guide_from_pytorch

void from_pytorch() { guide_from_pytorch::run(); }
