local m = require "moec"
local function tied(x)
  return m.matmul(x, m.transpose(m.get "embeding.w"))
end
return m.model { name = "a", vocab = 512, width = 512, sequence = 128, layers = {}, head = tied }
