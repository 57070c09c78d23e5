local m = require "moec"
local title = "é 日本 🎉" .. m.foo
