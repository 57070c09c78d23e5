local m = require "moec"
return m.model {
  name = "a", vocab = 512, width = 512, sequence = 128,
  layers = m.stack(1, function()
    return m.block {
      attention = {
        num_heads = 8,
        kv_heads = 2,
      },
    }
  end),
}
