local m = require "moec"
return m.model {
  name = "a", vocab = 512, width = 512, sequence = 128,
  layers = m.stack(2, function()
    return m.block {
      attention = { heads = 32, kv_heads = 6 },
    }
  end),
}
