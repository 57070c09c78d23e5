local socket = require "socket"
