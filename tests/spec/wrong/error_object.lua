local m = require "moec"
error({ code = 1 })
