local m = require "moec"
local fields = { heads = 8, widnow = 64 }
return m.model { name = "a", vocab = 512, width = 512, sequence = 128,
  layers = { m.block { attention = fields } } }
