local m = require "moec"
local width = 4096
return m.model {
  name = "a", vocab = 512, width = width, sequence = 128,
  layers = m.stack(1, function()
    return m.block {
      attention = { heads = 32 },
      ffn = { hidden = width * 8 / 3 },
    }
  end),
}
