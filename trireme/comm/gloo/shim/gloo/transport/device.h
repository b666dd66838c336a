#pragma once

#include <memory>
#include <string>

namespace gloo::transport {

class Context;

class Device {
 public:
  virtual ~Device() = 0;
  virtual std::string str() const = 0;
  virtual const std::string& getPCIBusID() const = 0;
  virtual int getInterfaceSpeed() const;
  virtual bool hasGPUDirect() const;
  virtual std::shared_ptr<Context> createContext(int rank, int size) = 0;
};

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};

}  // namespace gloo::transport
