local m = require "moec"
local function sizes(name)
  if name ~= "small" then error("size must be small, got " .. name) end
  return 64
end
local n = sizes("big")
