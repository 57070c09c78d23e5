local m = require "moec"
return m.model { name = "a", vocab = 512, width = 512, sequence = 128,
  layers = m.stack(2, function(i)
    m.block { ffn = { hidden = 64 } }
  end) }
